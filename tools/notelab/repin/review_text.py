"""Renders the review for a terminal: sentence, reason, old and new lines side by side."""

from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from itertools import zip_longest
from textwrap import dedent, wrap

from notelab.repin.review_order import ReviewItem, ReviewReason

_WIDTH = 80
_COLUMN_WIDTH = (_WIDTH - 3) // 2
_MAX_ROWS = 24  # rows of two texts side by side


def render(items: Iterable[ReviewItem]) -> Iterator[str]:
    """Yield the lines of the review in order; items without a changed name take a line each."""
    items = list(items)
    for item in items:
        if item.reason is not ReviewReason.CHANGED:
            yield from _render_item(item)
    changed_only = [item for item in items if item.reason is ReviewReason.CHANGED]
    if changed_only:
        yield f"{len(changed_only)} more, whose names are all still there:"
    for item in changed_only:
        positions = ", ".join(
            dict.fromkeys(f"{sentence.page}:{sentence.row}" for sentence in item.sentences)
        )
        yield from _wrap(f"{item.change.alarm}. {item.change.old} ({positions})")
    if claims := dict.fromkeys(name for item in items for name in item.claims):
        yield ""
        yield from _wrap("to judge again: " + ", ".join(claims))


def _render_item(item: ReviewItem) -> Iterator[str]:
    change = item.change
    arrow = f" -> {item.new_place}" if item.new_place else ""
    yield from _wrap(f"{change.alarm}. {change.old}{arrow}")
    yield from _wrap(f"{change.kind}: {change.reason}", "   ", "   ")
    for sentence in item.sentences:
        yield f"   {sentence.page}:{sentence.row}"
        yield from _wrap(sentence.text, "   > ", "   > ")
    yield from format_side_by_side(item.before, item.after)
    yield ""


def _wrap(text: str, first: str = "", rest: str = "   ") -> list[str]:
    # A citation is copied, so one that is wider than a line stays whole.
    return wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=rest,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def format_side_by_side(before: list[str], after: list[str]) -> list[str]:
    """Return two texts in two columns: the differences with a line around each.

    A text without a counterpart gets the whole width.
    """
    before, after = (
        dedent("\n".join(lines)).split("\n") if lines else [] for lines in (before, after)
    )
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    rows = [
        (old_line, " " if tag == "equal" else "|", new_line)
        for group in matcher.get_grouped_opcodes(1)
        for tag, i1, i2, j1, j2 in group
        for old_line, new_line in zip_longest(before[i1:i2], after[j1:j2], fillvalue="")
    ]
    width = _COLUMN_WIDTH if after else _WIDTH - 2
    lines = [
        f"{_fit_width(old_line, width)} {mark} {_fit_width(new_line, width)}".rstrip()
        for old_line, mark, new_line in rows[:_MAX_ROWS]
    ]
    hidden_rows = len(rows) - _MAX_ROWS
    return [*lines, f"… {hidden_rows} more lines"] if hidden_rows > 0 else lines


def _fit_width(line: str, width: int) -> str:
    line = line.expandtabs(4)
    return f"{line[: width - 1]}…" if len(line) > width else line.ljust(width)
