"""`python -m costlab`: what tools/bench runs."""

from costlab.cli import main

if __name__ == "__main__":
    main()
