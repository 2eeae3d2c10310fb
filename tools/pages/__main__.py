"""`python -m pages`: the command line.

    python -m pages                      lists the names
    python -m pages NAME                 writes the files of NAME
    python -m pages NAME --record …      first measures again what they are made from
    python -m pages NAME --check         exit status 1 if a file is out of date
    python -m pages --check              the same for every name

`record` in the module of NAME says what goes behind `--record`.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Sequence

from notelab.errors import NotelabError
from pages import catalog
from pages.blocks import ROOT, PageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, 1 (a file is out of date) or 2 (an error)."""
    parser = argparse.ArgumentParser("python -m pages", description=catalog.list_names())
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("name", nargs="?", choices=catalog.MODULES, metavar="NAME")
    parser.add_argument("--check", action="store_true", help="only say whether it is current")
    parser.add_argument("--record", nargs="*", metavar="ARGUMENT", help="first measure again")
    options = parser.parse_args(arguments)
    if options.check and options.record is not None:
        parser.error("choose --check or --record")
    if options.name is None and options.record is not None:
        parser.error("--record needs a NAME")
    try:
        if options.check:
            return _check([options.name] if options.name else list(catalog.MODULES))
        if options.name is None:
            print(catalog.list_names())
            return 0
        if options.record is not None:
            _record(parser, options.name, options.record)
        for path in catalog.write(options.name):
            print(f"{path.relative_to(ROOT)}: written")
    except (PageError, NotelabError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _check(names: list[str]) -> int:
    """Print a line for each file that is out of date; return the exit status."""
    status = 0
    for name in names:
        for path in catalog.list_stale(name):
            print(f"{path.relative_to(ROOT)}: out of date; run `python -m pages {name}`")
            status = 1
    return status


def _record(parser: argparse.ArgumentParser, name: str, arguments: list[str]) -> None:
    """Run `record` of the module; end with a usage error if it takes other arguments."""
    record = getattr(catalog.load(name), "record", None)
    if record is None:
        parser.error(f"{name} is made from nothing that is recorded: leave out --record")
    signature = inspect.signature(record)
    try:
        signature.bind(*arguments)
    except TypeError:
        wanted = [
            f"[{parameter.name}]" if parameter.default is not parameter.empty else parameter.name
            for parameter in signature.parameters.values()
        ]
        parser.error(f"{name} --record takes: {' '.join(wanted).upper() or 'nothing'}")
    record(*arguments)


if __name__ == "__main__":
    sys.exit(main())
