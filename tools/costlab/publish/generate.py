"""Everything that is generated from a lab's reference, and making a run that reference."""

from pathlib import Path

from costlab.judge import claims
from costlab.publish import claims_page, results_page
from costlab.publish.figures import figures
from costlab.record.result import ResultError, load, save


def generate(lab: Path) -> list[Path]:
    """Write figures, RESULTS and CLAIMS in both languages; return the files.

    Args:
        lab: the folder that holds results/reference.json and claims.toml.

    Raises:
        ResultError, ClaimsError: an input can't be read; nothing is half written.
    """
    claims.load(lab / claims_page.CLAIMS)  # before anything is replaced
    drawn = figures.write(load(lab / results_page.REFERENCE), lab)
    return [*drawn, *results_page.write(lab), *claims_page.write(lab)]


def adopt(file: Path, lab: Path) -> list[Path]:
    """Copy a result to `lab`/results/reference.json and generate what is made from it.

    Raises:
        ResultError: the result can't be read, broke off somewhere, or can't be written.
    """
    result = load(file)
    broken = [f"{name} ({part.note})" for name, part in result.sections.items() if part.note]
    if broken or not result.sections:
        what = f"broke off: {'; '.join(broken)}" if broken else "holds nothing"
        raise ResultError(f"{file} {what}; a reference is whole: measure again")
    reference = lab / results_page.REFERENCE
    save(result, reference)
    return [reference, *generate(lab)]


def beside(file: Path | None, local: Path) -> list[Path]:
    """Write RESULTS of a result of this machine's own into their folder; of no other, nothing.

    Raises:
        ResultError: the result can't be read.
    """
    if file is None or file.resolve().parent != local.resolve():
        return []
    written = results_page.write(local, file.name)
    for path in written:  # it lies two folders further down than the reference's page
        page = path.read_text("utf-8").replace("](../../docs/", "](../../../../docs/")
        path.write_text(page, "utf-8")
    return written
