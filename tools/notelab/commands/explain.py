"""Reads the pages of the rules and of the grammars, from docs/reference or from the wheel."""

import re
from difflib import get_close_matches
from pathlib import Path

from notelab.codes import RULES
from notelab.errors import NotelabError

_HERE = Path(__file__).resolve().parents[1]
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n\s*", re.DOTALL)
_REFERENCE = _HERE.parents[1] / "docs" / "reference"
_PLACES = [place for of in (_HERE / "reference", _REFERENCE) for place in (of / "rules", of)]
GRAMMARS = ("lab-file", "notes")


def code_of(rule: str) -> str:
    """Return the code of a rule that is given by code or name, in upper or lower case.

    The name of a grammar is returned as it is.

    Raises:
        NotelabError: there is no such rule.
    """
    codes = {name: code for code, name in RULES.items()}
    wanted = rule.strip()
    if wanted.upper() in RULES:
        return wanted.upper()
    if wanted.lower() in codes:
        return codes[wanted.lower()]
    if wanted.lower() in GRAMMARS:
        return wanted.lower()
    similar = get_close_matches(wanted, [*RULES, *codes, *GRAMMARS], n=3, cutoff=0.5)
    hint = "did you mean " + " or ".join(f"`{name}`" for name in similar) + "?" if similar else ""
    raise NotelabError(f"no rule {rule!r}", hint=hint or "`shardbook explain` lists all rules")


def page(code: str, language: str = "en") -> str:
    """Return the page of a rule or of a grammar as Markdown.

    Raises:
        NotelabError: there is no page in that language.
    """
    ending = "" if language == "en" else f".{language}"
    for place in _PLACES:
        path = place / f"{code}{ending}.md"
        if path.is_file():
            return _FRONT_MATTER.sub("", path.read_text("utf-8"))
    raise NotelabError(f"no page for {code} in {language!r}", hint="the languages are en and es")


def summary(code: str, language: str = "en") -> str:
    """Return the first sentence of a rule's page."""
    for paragraph in page(code, language).split("\n\n"):
        text = " ".join(paragraph.split())
        if text and not text.startswith("#"):
            return re.split(r"(?<=[.!?])\s", text)[0].replace("**", "")
    return ""
