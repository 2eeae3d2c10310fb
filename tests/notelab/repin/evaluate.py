"""`make repin-eval`: how much of the workbook is carried to other releases, and is any of it wrong?

A carried pair is judged by other means than those that carried it: its bytes are alike, `ast` finds
the same chain of definitions around it, and carried back it is where it came from. It needs a
clone of Megatron-LM (SHARDBOOK_MIRROR_MEGATRON); PyTorch's wheels come from the index.
"""

import ast
import os
from functools import cache
from pathlib import Path

from notelab.book.opening import open_bench
from notelab.repin import carry
from notelab.repin.becoming import Cited, Version, become
from notelab.repin.carried import Place
from notelab.repin.hunks import Map, maps

LAB = Path("experiments/35-reading-notes")
RELEASES = ("0.13.0", "0.14.0", "0.15.0", "0.15.3", "0.16.0", "0.17.1", "0.18.0", "0.19.0")


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
def between(new: bytes, old: bytes) -> Map:
    return maps([(new, old)])[0]


def judge(old: Version, was: Place, new: Version, now: Place) -> bool:
    text = old.raw[was.start - 1 : was.end] == new.raw[now.start - 1 : now.end]
    inside = definitions(old, was.end) == definitions(new, now.end)
    through = between(b"\n".join(new.raw), b"\n".join(old.raw))
    back = become(Cited(new, now.start, now.end, []), old, through, lambda name: [])
    return text and inside and back.new == was


def evaluate(source: str, ref: str) -> None:
    journey = carry.set_out(LAB.resolve(), source, ref, open_bench(()))
    made = carry.carried(journey)
    pairs = [(one.old, one.new) for one in made.citations if one.new]
    wrong = []
    befores = {was.path: journey.old(was.path) for was, _ in pairs}
    afters = {now.path: journey.new(now.path) for _, now in pairs}
    for was, now in pairs:
        old, new = befores[was.path], afters[now.path]
        if old is None or new is None or not judge(old, was, new, now):
            wrong.append(was)
    share = len(pairs) / len(made.citations)
    print(
        f"{source} {ref}: {len(pairs)} of {len(made.citations)} carried ({share:.1%}), "
        f"{len(wrong)} wrong {wrong[:3] or ''}",
        flush=True,
    )


if __name__ == "__main__":
    if not os.environ.get("SHARDBOOK_MIRROR_MEGATRON"):
        print("repin-eval: Megatron-LM is left out: SHARDBOOK_MIRROR_MEGATRON names no clone of it")
    else:
        for release in RELEASES:
            evaluate("megatron", f"core_v{release}")
    evaluate("pytorch", "v2.15.0")
