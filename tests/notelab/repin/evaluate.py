"""`make repin-eval`: how much is carried to other releases, is any wrong, are proposals right?

A carried pair is judged by other means than those that carried it: its bytes are alike, `ast` finds
the same chain of definitions around it, and carried back it is where it came from (git's map isn't
symmetrical: what isn't carried back must be proposed there first). What isn't carried is scored by
the frozen sample, beside git's hunks alone. It needs a clone of Megatron-LM
(SHARDBOOK_MIRROR_MEGATRON); PyTorch's wheels come from the index.
"""

import ast
import os
from functools import cache
from pathlib import Path

from notelab.book.opening import open_session
from notelab.repin import migrate
from notelab.repin.changes import Place
from notelab.repin.classify import classify_change
from notelab.repin.line_map import LineMap, map_lines
from notelab.repin.version import CitedLines, Version
from tests.notelab.repin import sample
from tests.notelab.repin.clone import Clone

LAB = Path("experiments/35-reading-notes")
RELEASES = (
    *("0.11.0", "0.12.0", "0.13.0", "0.14.0", "0.15.0", "0.15.3", "0.16.0"),
    *("0.17.1", "0.18.0", "0.19.0"),
)


@cache
def parse_symbols(path: str, text: bytes) -> list[tuple[int, int, str]]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    return sorted((node.lineno, node.end_lineno or 0, node.name) for node in nodes)


def definitions(version: Version, row: int) -> list[str]:
    if not version.path.endswith(".py"):
        return []
    symbols = parse_symbols(version.path, b"\n".join(version.raw))
    return [name for first, last, name in symbols if first <= row <= last]


@cache
def between(new: Version, old: Version) -> LineMap:
    return map_lines([(new, old)])[new, old]


def judge(old: Version, old_place: Place, new: Version, new_place: Place) -> bool:
    text = (
        old.raw[old_place.start - 1 : old_place.end] == new.raw[new_place.start - 1 : new_place.end]
    )
    inside = definitions(old, old_place.end) == definitions(new, new_place.end)
    back = classify_change(
        CitedLines(new, new_place.start, new_place.end, []),
        old,
        between(new, old),
        lambda cited: [],
    )
    return text and inside and [back.new or next(iter(back.proposals), None)] == [old_place]


def evaluate(source: str, ref: str) -> None:
    migration = migrate.open_migration(LAB.resolve(), source, ref, open_session(()))
    result = migrate.classify_citations(migration)
    pairs = [(change.old, change.new) for change in result.citations if change.new]
    wrong = []
    for old_place, new_place in pairs:
        old, new = migration.old_version(old_place), migration.new_version(new_place.path)
        if old is None or new is None or not judge(old, old_place, new, new_place):
            wrong.append(old_place)
    share = len(pairs) / len(result.citations)
    print(
        f"{source} {ref}: {len(pairs)} of {len(result.citations)} carried ({share:.1%}), "
        f"{len(wrong)} wrong {wrong[:3] or ''}",
        flush=True,
    )


def score(clone: Clone) -> None:
    """Say how many proposals for the sample are right, and of git's hunks alone."""
    for part, held_out in (("tuning", False), ("held out", True)):
        repin_score, hunks_score = sample.Score(), sample.Score()
        for judged in (candidate for candidate in sample.load() if candidate.held_out is held_out):
            change = sample.classify(judged, clone)
            if change.new is not None and change.new not in judged.places:
                print(f"sample: wrong: {judged.at} {judged.cited} carried to {change.new}")
            repin_score.count(judged, [change.new] if change.new else change.proposals)
            hunks_score.count(judged, sample.project_by_hunks(judged, clone))
        print(f"sample, {part}: {repin_score.format()}")
        print(f"  git's hunks alone: {hunks_score.format()}", flush=True)


def carry_untouched(clone: Clone) -> None:
    """Say how many of the citations that no hunk touches are carried, and how many wrongly."""
    carried, wrong = 0, []
    drawn = sample.load_untouched()
    for old, new, place in drawn:
        before, after = clone.version(old, place.path), clone.version(new, place.path)
        assert before is not None and after is not None
        line_map = clone.between(old, new, place.path)
        cited = CitedLines(before, place.start, place.end, [])
        new_place = classify_change(cited, after, line_map, lambda cited: []).new
        carried += new_place is not None
        if new_place is not None and not judge(before, place, after, new_place):
            wrong.append((old, new, place))
    pairs = {(old, new) for old, new, _ in drawn}
    backward = sum(old > new for old, new, _ in ((_order(a), _order(b), c) for a, b, c in drawn))
    print(
        f"untouched: {carried} of {len(drawn)} carried ({backward} of them to an older release, "
        f"{len(pairs)} pairs of releases), {len(wrong)} wrong {wrong[:3] or ''}",
        flush=True,
    )


def _order(release: str) -> list[int]:
    return [int(part) for part in release.split(".")]


if __name__ == "__main__":
    folder = os.environ.get("SHARDBOOK_MIRROR_MEGATRON")
    if not folder:
        print("repin-eval: Megatron-LM is left out: SHARDBOOK_MIRROR_MEGATRON names no clone of it")
    else:
        score(Clone(folder))
        carry_untouched(Clone(folder))
        for release in RELEASES:
            evaluate("megatron", f"core_v{release}")
    evaluate("pytorch", "v2.15.0")
