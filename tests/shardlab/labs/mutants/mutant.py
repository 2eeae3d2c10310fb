"""One wrong answer to lab 00b."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """In the solution of a part: what is replaced, by what, and the grader's words.

    The words name the cause; of a few they only say where it is wrong.
    """

    right: str
    wrong: str
    words: str
