"""The house in numbers: files a folder, lines a room, what a learning path loads, and how deep.

    python -m pages.house             of this checkout, as a Markdown table
    python -m pages.house CLONE …     of other clones too: a column each

Lines are those of code: without blank lines, comments and docstrings. Frames are those of ours
between `train.py`'s own and the process group's call, in a step of two ranks (TP = 2).
"""

import ast
import io
import json
import os
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from pathlib import Path

from pages.blocks import ROOT
from pages.programs import LIMIT

ROOMS = ("notelab", "sitelab", "shardlab", "costlab", "pages")
# What a learner opens, and what it was called before the rooms.
LEARNED = {"shardlab.layers.linear": "shardlab.linear", "train": "train"}
LOADED = """\
import importlib, json, sys
try:
    importlib.import_module(sys.argv[1])
except ModuleNotFoundError:
    importlib.import_module(sys.argv[2])
ours = [m for n, m in sys.modules.items() if n.split(".")[0] in ("shardlab", "train", "settings")]
print(json.dumps([m.__file__ for m in ours if getattr(m, "__file__", None)]))
"""
# In place of train.py on each rank: every collective of a process group says how it was reached.
WATCHED = """\
import json, os, runpy, sys
import torch.distributed as dist
deep = {}
def watched(name, call):
    def wrapper(*args, **kwargs):
        frame, ours = sys._getframe(1), 0
        while frame:
            ours += "/tools/shardlab/" in frame.f_code.co_filename
            frame = frame.f_back
        if ours:
            deep.setdefault(name, []).append(ours)
        return call(*args, **kwargs)
    return wrapper
for name in dir(dist.ProcessGroup):
    if any(word in name for word in ("allreduce", "gather", "reduce_scatter", "alltoall")):
        setattr(dist.ProcessGroup, name, watched(name, getattr(dist.ProcessGroup, name)))
out, script, *sys.argv[1:] = sys.argv[1:]
sys.argv[0] = script
sys.path.insert(0, os.path.dirname(script))
try:
    runpy.run_path(script, run_name="__main__")
finally:
    with open(f"{out}/{os.environ['RANK']}", "w") as file:
        json.dump(deep, file)
"""


def count_code_lines(path: Path) -> int:
    """Return the number of lines of a file that hold code."""
    text = path.read_text("utf-8")
    docs: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docs |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    without_code = (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
    )
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in without_code:
            code |= set(range(token.start[0], token.end[0] + (token.type != tokenize.ENDMARKER)))
    return len(code - docs)


def run_python(clone: Path, *command: str) -> str:
    """Return the output of a Python that imports the clone's own rooms."""
    python_path = os.pathsep.join([str(clone / "tools"), str(clone / "experiments" / "35-three-d")])
    return subprocess.run(
        [sys.executable, *command], env={**os.environ, "PYTHONPATH": python_path}, cwd=clone,
        check=True, capture_output=True, text=True, timeout=LIMIT,
    ).stdout  # fmt: skip


def count_frames(clone: Path) -> list[int]:
    """Return the number of our frames between train.py and each collective of a step."""
    with tempfile.TemporaryDirectory() as folder:
        watched = Path(folder, "watched.py")
        watched.write_text(WATCHED, "utf-8")
        script = clone / "experiments" / "35-three-d" / "train.py"
        ranks = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
        run_python(clone, *ranks, str(watched), folder, str(script), "--tp", "2", "--steps", "1")
        by_collective = json.loads(Path(folder, "0").read_text("utf-8"))
    return [frame for depths in by_collective.values() for frame in depths]


def measure_clone(clone: Path) -> dict[str, str]:
    """Return the rows of a clone's column."""
    tools = clone / "tools"
    table = {}
    for room in ROOMS:
        files = sorted((tools / room).rglob("*.py"))
        flat = Counter(path.parent for path in files if path.name != "__init__.py")
        [(largest_folder, count)] = flat.most_common(1)
        lines = sum(len(path.read_text("utf-8").splitlines()) for path in files)
        table[f"{room}: files, folders"] = f"{len(files)}, {len(flat)}"
        table[f"{room}: most files in a folder"] = f"{count} ({largest_folder.relative_to(tools)})"
        table[f"{room}: lines, of code"] = f"{lines:,}, {sum(map(count_code_lines, files)):,}"
    all_files = [path for path in tools.rglob("*.py") if "__pycache__" not in path.parts]
    total = sum(len(path.read_text("utf-8").splitlines()) for path in all_files)
    table["tools in all: lines, of code"] = f"{total:,}, {sum(map(count_code_lines, all_files)):,}"
    for name, old_name in LEARNED.items():
        loaded = [
            Path(file) for file in json.loads(run_python(clone, "-c", LOADED, name, old_name))
        ]
        table[f"importing {name}: modules, lines"] = (
            f"{len(loaded)}, {sum(map(count_code_lines, loaded)):,}"
        )
    depths = count_frames(clone)
    table["from train.py to a collective: frames"] = f"{min(depths)} to {max(depths)}"
    return table


def main() -> None:
    """Print the table."""
    clones = [ROOT, *map(Path.resolve, map(Path, sys.argv[1:]))]
    columns = [measure_clone(clone) for clone in clones]
    print("| | " + " | ".join(clone.name for clone in clones) + " |")
    print("|---|" + "--:|" * len(clones))
    for row in columns[0]:
        print("| " + " | ".join([row, *(column.get(row, "–") for column in columns)]) + " |")


if __name__ == "__main__":
    main()
