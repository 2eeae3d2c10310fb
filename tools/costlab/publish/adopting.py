"""Making a run the reference: the one that RESULTS.md, CLAIMS.md and the figures are made from."""

from __future__ import annotations

from pathlib import Path

from costlab.record.result import ResultError, load, save


def adopt(file: Path, lab: Path) -> list[Path]:
    """Copy a result to `lab`/results/reference.json and generate what is made from it.

    Raises:
        ResultError: the result can't be read, broke off somewhere, or can't be written.
    """
    from costlab.publish.generate import generate

    result = load(file)
    broken = [f"{name} ({part.note})" for name, part in result.sections.items() if part.note]
    if broken or not result.sections:
        what = f"broke off: {'; '.join(broken)}" if broken else "holds nothing"
        raise ResultError(f"{file} {what}; a reference is whole: measure again")
    reference = lab / "results" / "reference.json"
    save(result, reference)
    return [reference, *generate(lab)]
