"""A lab of many sound notes, citing real files at the pins: something to measure the checker on."""

import itertools
import random
import shutil
from pathlib import Path

from notelab.book.evidence import CitedFile
from notelab.cited import nearest_range
from notelab.page.citation import format_citation

NOTES, WORDS, CITATIONS, FILES = 1000, 500, 6, 7

_WORDS = [
    "the", "shard", "keeps", "its", "rows", "while", "each", "rank", "adds", "a", "partial", "sum",
    "before", "the", "group", "reduces", "it", "once", "and", "backward", "needs", "only", "what",
    "forward", "saved", "so", "memory", "falls", "as", "the", "layer", "grows", "wider", "than",
    "latency", "can", "hide", "between", "two", "kernels", "that", "wait", "for", "one", "link",
]  # fmt: skip


def find_sound_citations(file: CitedFile, count: int, draw: random.Random) -> list[tuple[str, str]]:
    """Return (citation, anchor) pairs of a file that break no rule."""
    outline = file.outline
    assert outline is not None
    citations = []
    statements = list(outline.statements)
    draw.shuffle(statements)
    for first, last in statements:
        names = sorted(outline.names_between(first, last))
        if not names or last - first >= 12:
            continue
        name = draw.choice(names)
        fits = nearest_range.fits(outline, first, last, 40, {name})
        if fits and nearest_range.weakness(outline, first, last, {name}) is None:
            citations.append((format_citation(file.path, first, last), name))
        if len(citations) == count:
            break
    return citations


def note(number: int, citations: list[tuple[str, str]], draw: random.Random, front: str) -> str:
    """Write one note: a choice per citation, two diagrams, filled up with words."""
    lines = [f"---\ntitle: Note {number}\ncommit:\n{front}---\n\n# Note {number}\n"]
    per_choice = WORDS // (len(citations) + 1)
    for index, (citation, anchor) in enumerate(citations):
        words = [draw.choice(_WORDS) for _ in range(per_choice - 5)]
        text = _wrapped(
            f"- **Choice {index + 1}.** Here `{anchor}` {' '.join(words)} `{citation}`."
        )
        lines.append(text)
    for block in range(2):
        nodes = [f"n{i}[{draw.choice(_WORDS)} {number} {block}]" for i in range(6)]
        arrows = "\n".join(
            f"  {a} -->|{draw.choice(_WORDS)}| {b}" for a, b in itertools.pairwise(nodes)
        )
        lines.append(f"\n```mermaid\nflowchart LR\n{arrows}\n```")
    closing = " ".join(draw.choice(_WORDS) for _ in range(per_choice))
    lines.append("\n## Connect the dots\n\n" + _wrapped(f"{closing} in lab 02.") + "\n")
    return "\n".join(lines)


def _wrapped(text: str, width: int = 96) -> str:
    out, line = [], ""
    indent = "  " if text.startswith("- ") else ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            out.append(line)
            line = indent + word
        else:
            line = f"{line} {word}" if line else word
    return "\n".join([*out, line])


def write(root: Path, real_lab: Path, files: list[CitedFile], notes: int = NOTES) -> Path:
    """Write the lab into `root` (a repository of its own) and return its folder."""
    draw = random.Random(35)
    lab = root / "experiments" / "99-many"
    lab.mkdir(parents=True)
    (root / ".git").mkdir()
    # The real lock knows the files: a wheel alone could not say that the pin has them.
    for name in ("megatron-sha.txt", "pytorch-sha.txt", "citations.lock"):
        shutil.copy(real_lab / name, lab / name)
    pins = {name: (lab / f"{name}-sha.txt").read_text().strip() for name in ("megatron", "pytorch")}
    front = "".join(f"  {name}: {pin[:12]}\n" for name, pin in pins.items())
    largest = sorted(files, key=lambda file: len(file.lines), reverse=True)[:FILES]
    pools = [find_sound_citations(file, 60, draw) for file in largest]
    head = (real_lab / "lab.toml").read_text("utf-8")
    sources = head[head.index("[sources.") : head.index("[notes.")]
    tables = []
    for number in range(notes):
        cited = [draw.choice(pools[(number + k) % len(pools)]) for k in range(CITATIONS)]
        name = f"note-{number:04}.md"
        (lab / name).write_text(note(number, cited, draw, front), "utf-8")
        tables.append(
            f'[notes."{name}"]\nsources = ["megatron", "pytorch"]\nmax-words = 600\n'
            'min-choices = 5\nchoice-words = [50, 90]\nclosing-mentions = { en = ["lab 02"] }\n'
        )
    toml = '[lab]\ntitle = "Many"\nlanguages = ["en"]\n\n' + sources + "\n" + "\n".join(tables)
    (lab / "lab.toml").write_text(toml, "utf-8")
    return lab
