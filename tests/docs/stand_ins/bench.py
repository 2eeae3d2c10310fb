"""A tools/bench that reads its command line and measures nothing."""

import sys

from costlab import cli
from costlab.sections import kernels
from costlab.sections.kernels import Case


def print_request(names: list[str], *, whole: bool, **options: object) -> int:
    """Print the request that the bench would measure."""
    print("would measure", *names, "whole" if whole else "", options)
    return 0


def print_cases(cases: list[Case], **options: object) -> int:
    """Print the cases that the bench would measure."""
    return print_request([case.name for case in cases], whole=False, **options)


if __name__ == "__main__":
    sys.argv[0] = "tools/bench"
    cli._measure = print_request
    kernels._measure = print_cases
    cli.main()
