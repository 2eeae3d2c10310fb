"""The time limit of tests that wait: only a hang exceeds it, never a slow machine.

A body on two ranks that takes seconds on idle cores took more than 60 s on a machine with other
work. `tests/docs/test_python_files.py` holds that no test waits less, and that none asserts a time.
"""

LIMIT = 600  # seconds; pytest's own limit for a whole test, in pyproject.toml, is larger
