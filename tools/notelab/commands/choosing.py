"""Which lab a source belongs to."""

from difflib import get_close_matches
from pathlib import Path

from notelab.book.finding_labs import default_labs
from notelab.errors import NotelabError
from notelab.lab import lab as lab_file


def lab_with(source: str, folder: Path | None, here: Path) -> Path:
    """Return the folder of the lab that owns `source` and its pin.

    Raises:
        NotelabError: no lab has it; the message names the sources there are.
    """
    labs = [folder.resolve()] if folder else default_labs(here)
    known: dict[str, Path] = {}
    for one in labs:
        lab = lab_file.load(one)
        for name in lab.sources:
            known.setdefault(name, lab.pins_folder)
    if source not in known:
        near = get_close_matches(source, known, n=1, cutoff=0.4)
        names = ", ".join(f"`{name}`" for name in known) or "none"
        raise NotelabError(
            f"no lab has a source called {source!r}; there are: {names}",
            hint=f"did you mean `{near[0]}`?" if near else "",
        )
    return known[source]
