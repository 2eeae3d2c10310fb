"""What theory 06 shows of the code, between `<!-- NAME -->` and `<!-- /NAME -->`.

python -m tests.shardlab.context.long_pages
"""

from __future__ import annotations

from pathlib import Path

from shardlab.proofs import causal_work, formulas
from shardlab.proofs.formulas.context import kept
from tests.shardlab.labs.lab_pages import LANGUAGES, ROOT, table, write

MIB, RANKS, HEADS, HEAD, TOKENS = 1 << 20, 4, 8, 128, 8192
HEAD_ROW = {
    "en": ["G", "sent: ring, all-gather", "sent: Ulysses", "kept for backward"],
    "es": ["G", "enviado: anillo, all-gather", "enviado: Ulysses", "guardado"],
}


def page(language: str) -> Path:
    ending = "" if language == LANGUAGES[0] else f".{language}"
    return ROOT / "docs" / "theory" / f"06-long-sequences{ending}.md"


def blocks(language: str) -> dict[str, str]:
    rows = []
    for groups in (8, 4, 1):
        sizes = {"tokens": TOKENS, "queries": HEADS * HEAD, "keys": groups * HEAD, "itemsize": 2}
        sent = {
            kind: formulas.context_attention(kind, ranks=RANKS, **sizes)
            for kind in ("ring", "ulysses")
        }
        wires = [
            f"{kind.wire / MIB:g}" if name == "ring" or groups % RANKS == 0 else "–"
            for name, kind in sent.items()
        ]
        rows.append([f"{groups}", *wires, f"{kept(ranks=RANKS, heads=HEADS, **sizes) / MIB:.2f}"])
    return {
        "who computes what": f"```text\n{causal_work.text(RANKS)}\n```",
        "bytes": table(HEAD_ROW[language], ">>>>", rows),
    }


def main() -> None:
    """Write both languages' pages."""
    for language in LANGUAGES:
        write(page(language), blocks(language))


if __name__ == "__main__":
    main()
