"""tools/bench, which reads its command line and measures nothing."""

import sys

from costlab import cli


def read(names: list[str], *, whole: bool, **options: object) -> int:
    """Say what would be measured."""
    print("would measure", *names, "whole" if whole else "", options)
    return 0


if __name__ == "__main__":
    sys.argv[0] = "tools/bench"
    cli._measure = read
    cli.main()
