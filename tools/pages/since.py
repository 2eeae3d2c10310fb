"""Since the pin: the sentences that newer releases of the sources made false.

`--record SOURCE REF` carries a source to a release as `shardbook repin` does; `--record SOURCE`
keeps its places and only quotes the pages' sentences again.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from textwrap import indent

from notelab.lab.pages import translation_path
from notelab.repin.changes import Place
from notelab.repin.review_order import ReviewReason
from pages.blocks import LANGUAGES, ROOT, in_language
from pages.since_record import Judged, Quote, ReviewedCitation, Since, load_data, load_judged

CLAIMS = "experiments/35-allreduce-costs/CLAIMS.md"
WORDS: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text("utf-8")
)
VERDICTS = ("false", "partly", "unread", "true")  # the gravest first


def render_page(language: str) -> str:
    """Return the page in a language."""
    words = WORDS[language]
    judged = load_judged()
    parts = [words["top"]]
    for since in load_data():
        of_source = [judgement for judgement in judged if judgement.source == since.source]
        parts += _render_source(since, of_source, language)
    return "\n\n".join(parts) + "\n"


def _render_source(since: Since, judged: list[Judged], language: str) -> Iterator[str]:
    words = WORDS[language]
    old, new = since.releases
    yield f"## {since.title}: {old} → {new}"
    kinds = ", ".join(f"{count} {words[kind]}" for kind, count in since.kinds.items())
    yield words["carried"].format(total=sum(since.kinds.values()), kinds=kinds)
    if since.changed:
        names = ", ".join(f"`{name}` ({words[how]})" for name, how in since.changed.items())
        yield words["names"].format(names=names)
    yield f"### {words['holds']}"
    yield words["read"].format(counts=_render_counts(since, judged, language))
    yield "\n".join(_render_false_sentences(since, judged, language))
    claims: dict[str, list[str]] = {}
    for item in since.reread:
        for quote in item.quotes:
            if quote.anchor:
                claims.setdefault(quote.anchor, []).append(_find_verdict(judged, item, quote))
    if claims:
        address = _make_address(CLAIMS, language)
        links = [
            f"[{name.removeprefix('claim-')}]({address}#{name}) "
            f"({words[f'claim {_pick_gravest(verdicts)}']})"
            for name, verdicts in claims.items()
        ]
        yield words["claims"].format(claims=", ".join(links))
    yield f"### {words['order']}"
    rows = [
        _render_item(n, item, since, judged, language)
        for n, item in enumerate(since.reread, start=1)
    ]
    unfolded = sum(item.why is not ReviewReason.CHANGED for item in since.reread)
    if unfolded:
        yield "\n".join(rows[:unfolded])
    if rows[unfolded:]:
        folded = words["folded"].format(count=len(rows) - unfolded)
        yield f'??? note "{folded}"'
        yield indent("\n".join(rows[unfolded:]), "    ")


def find_judgement(judged: Iterable[Judged], item: ReviewedCitation, quote: Quote) -> Judged | None:
    """Return the judgement of a sentence, or None if nobody has read it at the newer release."""
    for judgement in judged:
        if (
            judgement.cited == str(item.old)
            and quote.page in judgement.pages
            and judgement.says in quote.text["en"]
        ):
            return judgement
    return None


def count_verdicts(since: Since, judged: list[Judged]) -> Counter[str]:
    """Return how many sentences have each verdict; one that cites several lines counts once."""
    verdicts: dict[tuple[str, str], list[str]] = {}
    for item in since.reread:
        for quote in item.quotes:
            verdict = _find_verdict(judged, item, quote)
            verdicts.setdefault((quote.page, quote.text["en"]), []).append(verdict)
    return Counter(map(_pick_gravest, verdicts.values()))


def _find_verdict(judged: list[Judged], item: ReviewedCitation, quote: Quote) -> str:
    judgement = find_judgement(judged, item, quote)
    return judgement.verdict if judgement else "unread"


def _pick_gravest(verdicts: Iterable[str]) -> str:
    """Return the gravest of the verdicts on a sentence or claim."""
    found = set(verdicts)
    return next(verdict for verdict in VERDICTS if verdict in found)


def _render_counts(since: Since, judged: list[Judged], language: str) -> str:
    counts, words = count_verdicts(since, judged), WORDS[language]
    return ", ".join(
        words[f"{verdict} {'one' if counts[verdict] == 1 else 'many'}"].format(
            count=counts[verdict]
        )
        for verdict in VERDICTS
        if counts[verdict]
    )


def _render_false_sentences(since: Since, judged: list[Judged], language: str) -> Iterator[str]:
    """Yield the sentences judged false or partly so, false ones first, each once."""
    words = WORDS[language]
    for wanted in ("false", "partly"):
        rows: dict[tuple[str, str], tuple[Quote, list[str]]] = {}
        for item in since.reread:
            for quote in item.quotes:
                judgement = find_judgement(judged, item, quote)
                if judgement and judgement.verdict == wanted:
                    # A row is told once, with what its columns say together.
                    about = quote.page, quote.text["en"].partition(" — ")[0]
                    longest_yet, reasons = rows.get(about, (quote, []))
                    longest = max(longest_yet, quote, key=lambda quote: len(quote.text["en"]))
                    rows[about] = longest, list(dict.fromkeys([*reasons, judgement.why[language]]))
        for quote, reasons in rows.values():
            link = f"[{_read_title(quote, language)}]({_make_link(quote, language)})"
            # A claims page says something of a claim; its words are not the page's own.
            link += f": {words['on']}" if quote.anchor else ":"
            quoted = words["quoted"].format(text=quote.text[language])
            yield f"- **{words[wanted]}** · {link} {quoted} {words['now']}: {'; '.join(reasons)}."


def _render_item(
    place: int, item: ReviewedCitation, since: Since, judged: list[Judged], language: str
) -> str:
    old, new = since.commits
    lines = _make_permalink(since.url, old, item.old)
    if item.new:
        lines += f" → {_make_permalink(since.url, new, item.new)}"
    quotes = [
        f"    - **{WORDS[language][_find_verdict(judged, item, q)]}** · "
        f"[{_read_title(q, language)}]({_make_link(q, language)}): {q.text[language]}"
        for q in item.quotes
    ]
    # Where the rest begins, Markdown would count from one again.
    mark = "-" if item.why is ReviewReason.CHANGED else f"{place}."
    return "\n".join([f"{mark} {lines}: {_describe_reason(item, since, language)}", *quotes])


def _describe_reason(item: ReviewedCitation, since: Since, language: str) -> str:
    words = WORDS[language]
    names = ", ".join(f"`{name}`" for name in item.names)
    if item.why is ReviewReason.NAME_CHANGED:
        changes = [f"`{name}` {words[since.changed[name]]}" for name in item.names]
        return ", ".join(changes)
    if item.why is ReviewReason.GONE and not names:
        return words["gone lines"]
    if item.why is ReviewReason.CHANGED and not item.share:
        return words["same words"]
    return words[item.why.name].format(names=names, share=round(100 * item.share))


def _make_permalink(url: str, commit: str, place: Place) -> str:
    lines = f"L{place.start}-L{place.end}" if place.start != place.end else f"L{place.start}"
    name = PurePosixPath(place.path).name.replace("_", "\\_")
    address = f"{url.removesuffix('.git')}/blob/{commit}/{place.path}#{lines}"
    return f"[{name} {lines.replace('-', '–')}]({address})"


def _make_link(quote: Quote, language: str) -> str:
    return _make_address(quote.page, language) + (f"#{quote.anchor}" if quote.anchor else "")


def _make_address(name: str, language: str) -> str:
    """Return a page's address from docs/reference."""
    place = PurePosixPath(name)
    if language != "en":
        place = place.with_name(f"{place.stem}.{language}.md")
    inside = place.parts[0] == "docs"
    return f"../{'/'.join(place.parts[1:])}" if inside else f"../../{place}"


def _read_title(quote: Quote, language: str) -> str:
    place = ROOT / quote.page
    text = (place if language == "en" else translation_path(place, language)).read_text("utf-8")
    heading = re.search(r"^# (.+)$", text, re.MULTILINE)
    return heading[1] if heading else quote.page


def render() -> Iterator[tuple[Path, str]]:
    """Yield the page in each language."""
    for language in LANGUAGES:
        yield in_language("docs/reference/since", language), render_page(language)


def record(source: str, ref: str = "") -> None:
    """Carry a source to a release, or only quote its sentences again; replace its record."""
    from pages.since_record import carry, requote_source

    if ref:
        carry(source, ref)
    else:
        requote_source(source)
