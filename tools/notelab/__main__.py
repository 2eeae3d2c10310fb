"""Run the command `shardbook` as `python -m notelab`."""

from notelab.cli import main

main()
