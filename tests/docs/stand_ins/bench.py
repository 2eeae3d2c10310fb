"""A tools/bench that reads its command line and measures nothing."""

import sys

from costlab import cli


def print_request(names: list[str], *, whole: bool, **options: object) -> int:
    """Print the request that the bench would measure."""
    print("would measure", *names, "whole" if whole else "", options)
    return 0


if __name__ == "__main__":
    sys.argv[0] = "tools/bench"
    cli._measure = print_request
    cli.main()
