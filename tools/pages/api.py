"""The drawers of the API pages: each file's first sentence, a link to it, and its docstrings."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from pages.blocks import ROOT, PageError

API = ROOT / "docs" / "reference" / "api"
_DRAWER = re.compile(r'^\?\?\? abstract ".*"\n\n(?:    .*\n|\n)*?    ::: (shardlab\.\S+)$', re.M)


def render() -> Iterator[tuple[Path, str]]:
    """Yield each page of the API with its drawers."""
    for path in sorted(API.glob("*.md")):
        yield path, _DRAWER.sub(lambda match: make_drawer(match[1]), path.read_text("utf-8"))


def make_drawer(module: str) -> str:
    """Return the drawer of a module.

    Raises:
        PageError: the module doesn't exist, or its docstring doesn't begin with a sentence that
            can be quoted.
    """
    file = f"tools/{module.replace('.', '/')}.py"
    try:
        docstring = ast.get_docstring(ast.parse((ROOT / file).read_text("utf-8"))) or ""
    except OSError as error:
        raise PageError(f"{file} can't be read, but the API pages have a drawer for it") from error
    sentence = " ".join(docstring.partition("\n\n")[0].split())
    if not sentence.endswith(".") or '"' in sentence:
        raise PageError(f"{file}: begin its docstring with a sentence without double quotes")
    return (
        f'??? abstract "`{module}` {sentence}"\n\n'
        f"    [`{file}`](../../../{file})\n\n"
        f"    ::: {module}"
    )
