"""The pages "Since the pin": what in this workbook the sources' newer releases made false.

    python -m tests.docs.since.pages        writes both pages

They are made from docs/measured/since.json, which has no source text in it, and from the judgements
of tests/notelab/repin/judged.toml. `record` makes that file anew where a source was carried again.
"""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from textwrap import indent
from typing import Literal

import msgspec

from notelab.lab.pages import translation_path
from notelab.repin.changes import Kind, Place
from notelab.repin.review_order import ReviewReason
from tests.docs.page import ROOT
from tests.docs.since.words import WORDS
from tests.notelab.repin.judgements import Judged, load

DATA = ROOT / "docs" / "measured" / "since.json"
PAGES = {"en": "since.md", "es": "since.es.md"}
CLAIMS = "experiments/35-allreduce-costs/CLAIMS.md"


class Said(msgspec.Struct, frozen=True):
    """A sentence of a page, in each language."""

    page: str
    text: dict[str, str]
    anchor: str = ""


class Read(msgspec.Struct, frozen=True):
    """A citation to read again, in the order of the list."""

    old: Place
    kind: Kind
    why: ReviewReason
    names: list[str]
    share: float
    said: list[Said]
    new: Place | None = None


class Since(msgspec.Struct, frozen=True):
    """A source since its pin. `changed` are the names that vanished or appeared, and which way."""

    source: str
    title: str
    url: str
    commits: tuple[str, str]
    releases: tuple[str, str]
    kinds: dict[Kind, int]
    changed: dict[str, Literal["vanished", "appeared"]]
    reread: list[Read]


def data() -> list[Since]:
    """Return what was carried last."""
    return msgspec.json.decode(DATA.read_bytes(), type=list[Since])


def page(language: str) -> str:
    """Return the page in a language."""
    words = WORDS[language]
    judged = load()
    parts = [words["top"]]
    for since in data():
        parts += _source(since, [one for one in judged if one.source == since.source], language)
    return "\n\n".join(parts) + "\n"


def _source(since: Since, judged: list[Judged], language: str) -> Iterator[str]:
    words = WORDS[language]
    old, new = since.releases
    yield f"## {since.title}: {old} → {new}"
    kinds = ", ".join(f"{count} {words[kind]}" for kind, count in since.kinds.items())
    yield words["carried"].format(total=sum(since.kinds.values()), kinds=kinds)
    if since.changed:
        told = ", ".join(f"`{name}` ({words[how]})" for name, how in since.changed.items())
        yield words["names"].format(names=told)
    yield f"### {words['holds']}"
    yield "\n".join(_what_no_longer_holds(since, judged, language))
    claims = {s.anchor: None for one in since.reread for s in one.said if s.anchor}
    if claims:
        address = _address(CLAIMS, language)
        links = [f"[{name.removeprefix('claim-')}]({address}#{name})" for name in claims]
        yield words["claims"].format(claims=", ".join(links))
    yield f"### {words['order']}"
    rows = [_item(at, one, since, language) for at, one in enumerate(since.reread, start=1)]
    sharp = sum(one.why is not ReviewReason.CHANGED for one in since.reread)
    if sharp:
        yield "\n".join(rows[:sharp])
    if rows[sharp:]:
        folded = words["folded"].format(count=len(rows) - sharp)
        yield f'??? note "{folded}"'
        yield indent("\n".join(rows[sharp:]), "    ")


def _what_no_longer_holds(since: Since, judged: list[Judged], language: str) -> Iterator[str]:
    """Yield the sentences judged false or partly so, false ones first, each once."""
    words = WORDS[language]
    for wanted in ("false", "partly"):
        known = {
            (page, one.cited): one for one in judged if one.verdict == wanted for page in one.pages
        }
        found: dict[tuple[str, str], tuple[Said, list[str]]] = {}
        for read in since.reread:
            for said in read.said:
                one = known.get((said.page, str(read.old)))
                if one and one.says in said.text["en"]:
                    # A row is told once, with what its columns say together.
                    about = said.page, said.text["en"].partition(" — ")[0]
                    held, reasons = found.get(about, (said, []))
                    longest = max(held, said, key=lambda two: len(two.text["en"]))
                    found[about] = longest, list(dict.fromkeys([*reasons, one.why[language]]))
        for said, reasons in found.values():
            link = f"[{_title(said, language)}]({_link(said, language)})"
            # A claims page says something of a claim; its words are not the page's own.
            link += f" {words['on']}" if said.anchor else ":"
            quoted = words["quoted"].format(text=said.text[language])
            yield f"- **{words[wanted]}** · {link} {quoted} {words['now']}: {'; '.join(reasons)}."


def _item(place: int, one: Read, since: Since, language: str) -> str:
    old, new = since.commits
    lines = _permalink(since.url, old, one.old)
    if one.new:
        lines += f" → {_permalink(since.url, new, one.new)}"
    told = [
        f"    - [{_title(said, language)}]({_link(said, language)}): {said.text[language]}"
        for said in one.said
    ]
    # Where the rest begins, Markdown would count from one again.
    mark = "-" if one.why is ReviewReason.CHANGED else f"{place}."
    return "\n".join([f"{mark} {lines}: {_why(one, since, language)}", *told])


def _why(one: Read, since: Since, language: str) -> str:
    words = WORDS[language]
    names = ", ".join(f"`{name}`" for name in one.names)
    if one.why is ReviewReason.NAME_CHANGED:
        told = [f"`{name}` {words[since.changed[name]]}" for name in one.names]
        return ", ".join(told)
    if one.why is ReviewReason.GONE and not names:
        return words["gone lines"]
    if one.why is ReviewReason.CHANGED and not one.share:
        return words["same words"]
    return words[one.why.name].format(names=names, share=round(100 * one.share))


def _permalink(url: str, commit: str, place: Place) -> str:
    lines = f"L{place.start}-L{place.end}" if place.start != place.end else f"L{place.start}"
    name = PurePosixPath(place.path).name.replace("_", "\\_")
    address = f"{url.removesuffix('.git')}/blob/{commit}/{place.path}#{lines}"
    return f"[{name} {lines.replace('-', '–')}]({address})"


def _link(said: Said, language: str) -> str:
    return _address(said.page, language) + (f"#{said.anchor}" if said.anchor else "")


def _address(name: str, language: str) -> str:
    """Return a page's address from docs/reference."""
    place = PurePosixPath(name)
    if language != "en":
        place = place.with_name(f"{place.stem}.{language}.md")
    inside = place.parts[0] == "docs"
    return f"../{'/'.join(place.parts[1:])}" if inside else f"../../{place}"


def _title(said: Said, language: str) -> str:
    place = ROOT / said.page
    text = (place if language == "en" else translation_path(place, language)).read_text("utf-8")
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return found[1] if found else said.page


def main() -> None:
    """Write both pages."""
    for language, name in PAGES.items():
        (ROOT / "docs" / "reference" / name).write_text(page(language), "utf-8")


if __name__ == "__main__":
    main()
