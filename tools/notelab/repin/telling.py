"""What to read again, in a terminal: sentence, reason, old and new lines side by side."""

from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from itertools import zip_longest
from textwrap import dedent, wrap

from notelab.repin.reading import Reread, Why

_WIDTH = 80
_HALF = (_WIDTH - 3) // 2
_MOST = 24  # rows of two texts side by side


def told(reread: Iterable[Reread]) -> Iterator[str]:
    """Yield the lines that tell what to read again, first things first, the rest in a line each."""
    reread = list(reread)
    for one in reread:
        if one.why is not Why.CHANGED:
            yield from _in_full(one)
    folded = [one for one in reread if one.why is Why.CHANGED]
    if folded:
        yield f"{len(folded)} more, of which nothing named has left:"
    for one in folded:
        at = ", ".join(dict.fromkeys(f"{said.page}:{said.row}" for said in one.sentences))
        yield from _wrapped(f"{one.carried.alarm}. {one.carried.old} ({at})")
    if claims := dict.fromkeys(name for one in reread for name in one.claims):
        yield ""
        yield from _wrapped("to judge again: " + ", ".join(claims))


def _in_full(one: Reread) -> Iterator[str]:
    carried = one.carried
    arrow = f" -> {one.there}" if one.there else ""
    yield from _wrapped(f"{carried.alarm}. {carried.old}{arrow}")
    yield from _wrapped(f"{carried.kind}: {carried.reason}", "   ", "   ")
    for said in one.sentences:
        yield f"   {said.page}:{said.row}"
        yield from _wrapped(said.text, "   > ", "   > ")
    yield from side_by_side(one.before, one.after)
    yield ""


def _wrapped(text: str, first: str = "", rest: str = "   ") -> list[str]:
    # A citation is copied, so one that is wider than a line stays whole.
    return wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=rest,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def side_by_side(before: list[str], after: list[str]) -> list[str]:
    """Return two texts in 80 columns, what differs with a line around it; one alone has all."""
    before, after = (
        dedent("\n".join(lines)).split("\n") if lines else [] for lines in (before, after)
    )
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    shown = [
        (left, " " if tag == "equal" else "|", right)
        for group in matcher.get_grouped_opcodes(1)
        for tag, i1, i2, j1, j2 in group
        for left, right in zip_longest(before[i1:i2], after[j1:j2], fillvalue="")
    ]
    half = _HALF if after else _WIDTH - 2
    lines = [
        f"{_cut(left, half)} {mark} {_cut(right, half)}".rstrip()
        for left, mark, right in shown[:_MOST]
    ]
    more = len(shown) - _MOST
    return [*lines, f"… {more} lines more"] if more > 0 else lines


def _cut(line: str, width: int) -> str:
    line = line.expandtabs(4)
    return f"{line[: width - 1]}…" if len(line) > width else line.ljust(width)
