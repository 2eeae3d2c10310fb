"""Arguments and options that several commands share."""

from pathlib import Path

import click

mirror_option = click.option(
    "--mirror",
    "mirrors",
    multiple=True,
    metavar="NAME=DIR",
    help="Read source NAME from a clone on disk, bare or not (also: SHARDBOOK_MIRROR_NAME).",
)
offline_option = click.option(
    "--offline", is_flag=True, help="Ask no remote; use the store, mirrors and installed packages."
)
lab_option = click.option(
    "--lab",
    "lab_folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="The lab's folder, if several labs have the source.",
)
paths_argument = click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
