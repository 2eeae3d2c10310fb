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
from notelab.repin import carry
from notelab.repin.becoming import become
from notelab.repin.carried import Place
from notelab.repin.hunks import Map, maps
from notelab.repin.version import Cited, Version
from tests.notelab.repin import sampled
from tests.notelab.repin.drawing import Clone

LAB = Path("experiments/35-reading-notes")
RELEASES = (
    *("0.11.0", "0.12.0", "0.13.0", "0.14.0", "0.15.0", "0.15.3", "0.16.0"),
    *("0.17.1", "0.18.0", "0.19.0"),
)


@cache
def parsed(path: str, text: bytes) -> list[tuple[int, int, str]]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    around = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    return sorted((node.lineno, node.end_lineno or 0, node.name) for node in around)


def definitions(version: Version, row: int) -> list[str]:
    if not version.path.endswith(".py"):
        return []
    known = parsed(version.path, b"\n".join(version.raw))
    return [name for first, last, name in known if first <= row <= last]


@cache
def between(new: Version, old: Version) -> Map:
    return maps([(new, old)])[new, old]


def judge(old: Version, was: Place, new: Version, now: Place) -> bool:
    text = old.raw[was.start - 1 : was.end] == new.raw[now.start - 1 : now.end]
    inside = definitions(old, was.end) == definitions(new, now.end)
    back = become(Cited(new, now.start, now.end, []), old, between(new, old), lambda cited: [])
    return text and inside and [back.new or next(iter(back.proposals), None)] == [was]


def evaluate(source: str, ref: str) -> None:
    journey = carry.set_out(LAB.resolve(), source, ref, open_session(()))
    made = carry.carried(journey)
    pairs = [(one.old, one.new) for one in made.citations if one.new]
    wrong = []
    for was, now in pairs:
        old, new = journey.old(was), journey.new(now.path)
        if old is None or new is None or not judge(old, was, new, now):
            wrong.append(was)
    share = len(pairs) / len(made.citations)
    print(
        f"{source} {ref}: {len(pairs)} of {len(made.citations)} carried ({share:.1%}), "
        f"{len(wrong)} wrong {wrong[:3] or ''}",
        flush=True,
    )


def score(clone: Clone) -> None:
    """Say how many proposals for the sample are right, and of git's hunks alone."""
    for part, held_out in (("tuning", False), ("held out", True)):
        ours, plain = sampled.Score(), sampled.Score()
        for one in (each for each in sampled.load() if each.held_out is held_out):
            became = sampled.became(one, clone)
            if became.new is not None and became.new not in one.places:
                print(f"sample: wrong: {one.at} {one.cited} carried to {became.new}")
            ours.count(one, [became.new] if became.new else became.proposals)
            plain.count(one, sampled.plainly(one, clone))
        print(f"sample, {part}: {ours.told()}")
        print(f"  git's hunks alone: {plain.told()}", flush=True)


def carry_untouched(clone: Clone) -> None:
    """Say how many of the citations that no hunk touches are carried, and how many wrongly."""
    carried, wrong = 0, []
    drawn = sampled.untouched()
    for old, new, place in drawn:
        before, after = clone.version(old, place.path), clone.version(new, place.path)
        assert before is not None and after is not None
        through = clone.between(old, new, place.path)
        cited = Cited(before, place.start, place.end, [])
        now = become(cited, after, through, lambda cited: []).new
        carried += now is not None
        if now is not None and not judge(before, place, after, now):
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
