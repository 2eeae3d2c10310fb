"""`python -m notelab` is the command `shardbook`."""

from notelab.cli import main

main()
