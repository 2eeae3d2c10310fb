"""Commands of pages that the tests replace, with the reason. Other commands run unchanged.

`make` itself is asked what it would do (MAKEFLAGS=n): every target downloads, and the jobs of
`.ci/run` run them. So a target that is gone is noticed, and a recipe isn't run.
"""

import re
from dataclasses import dataclass

NOTES = "experiments/35-reading-notes"
MINE = "experiments/my-reading"


@dataclass(frozen=True)
class Replacement:
    """A pattern that matches a whole command, the command that replaces it, and the reason."""

    pattern: str
    run: str
    because: str


REPLACEMENTS = (
    Replacement(r"git clone REPOSITORY (\w+)",
        r'git clone --quiet "$REPOSITORY" \1 && "$PYTHON" "$DOCS/environment.py" \1',
        "the address is that of this working tree, and what make would install is lent"),
    Replacement(r"(torchrun .*train\.py.*)", r"\1 --steps 1 --sequence 16",
        "sixty steps on ranks that share a processor take minutes"),
    Replacement(r"tools/bench(?! --help| claims| compare| report)(.*)",
        r'.venv/bin/python "$DOCS/stand_ins/bench.py"\1',
        "it measures for minutes; here it reads the command line, tests/costlab measures"),
    Replacement(r"(tools/bench compare) A.json B.json",
        r"\1 experiments/*/results/reference.json experiments/*/results/reference.json",
        "any two results will do"),
    Replacement(r"(tools/bench report --adopt)",
        r"\1 experiments/35-allreduce-costs/results/reference.json",
        "nothing was measured here that could become the reference"),
    Replacement(r"make hooks", "pre-commit install",
        "that is its recipe, and the hook is wanted here"),
    Replacement(
        rf"(shardbook lock {MINE})",
        rf"cp {NOTES}/megatron-tp-layers.md {NOTES}/fsdp-prefetch.md {NOTES}/synthesis.md {MINE} "
        r"&& \1",
        "the learner has written three notes by then; finished ones stand for them",
    ),
    Replacement(
        r"(shardbook pin .* --mirror megatron)=DIR",
        rf'\1="$UPSTREAM" && cp {NOTES}/*-sha.txt {MINE} '
        "&& unset SHARDBOOK_MIRROR_MEGATRON SHARDBOOK_MIRROR_PYTORCH",
        "the reader names a clone; the commit of ours isn't the one that the notes are about, nor "
        "are its tags",
    ),
    Replacement(rf"(shardbook check {MINE}\S*)",
        r"env -u SHARDBOOK_MIRROR_MEGATRON -u SHARDBOOK_MIRROR_PYTORCH \1",
        "the pins are copied by then, and the tags of our clone aren't at them"),
    Replacement(r"shardbook check --watch (.*)", r"shardbook check \1 || true",
        "it would watch for ever"),
    Replacement(r"(git commit --no-verify)", r"\1 --allow-empty --message 'On the way'",
        "there is nothing to commit at this place, and no editor"),
    Replacement(r"(shardbook recall)", r"printf '\n3\n' | \1",
        "the learner answers one card, and goes"),
    Replacement(r"apt install chromium", "true",
        "the machine's packages aren't a test's to change"),
)  # fmt: skip

# How a command ends where that isn't 0: by page, then command, then how it ends each time.
EXPECTED_ENDS = {
    "docs/labs/00b-write-it.md": {
        "python experiments/35-write-it/grade.py": [(1, "unit: still to be written: Gather")],
        "python experiments/35-write-it/grade.py linears": [(1, "still to be written: F")]},
    "docs/labs/03-annotated-reading.md": {
        f"shardbook check {MINE}": [(1, "10 findings"), (0, f"then `shardbook compare {MINE}`")],
        f"shardbook compare {MINE}": [(0, "Yours alone: 0")],
        "shardbook recall": [(0, "1 answered")]},
    "docs/labs/05-from-text-to-the-batch.md": {
        "python -m shardlab.data verify ../cut": [(1, "cut short, or of another corpus")],
        "python -m shardlab.data verify ../mixed": [(1, "cut short, or of another corpus")],
        "python -m shardlab.data verify ../wide": [(1, "must not overlap or leave gaps")],
        "python -m shardlab.data verify ../theory --vocabulary 128": [(1, "another tokenizer")],
        "python experiments/37-batches/check.py ../theory": [(1, "not written yet")]},
    "docs/labs/06-long-sequences.md": {
        "python experiments/38-long-sequences/grade_faulty.py": [(1, "It is a mean of means")]},
}  # fmt: skip


def replace_command(command: str) -> str:
    """Return the command that the tests run for a page's command."""
    for replacement in REPLACEMENTS:
        if re.fullmatch(replacement.pattern, command):
            return re.sub(replacement.pattern, replacement.run, command, count=1)
    return command
