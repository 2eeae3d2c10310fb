"""`shardbook new`: a lab of one's own, from another lab's conditions or about any repository."""

import json
import os
import re
import shlex
import shutil
from pathlib import Path

from notelab.book.finding_labs import labs_below
from notelab.book.opening import open_bench
from notelab.commands.blank_page import blank_page, filled
from notelab.errors import NotelabError, display_path
from notelab.lab import lab as lab_file
from notelab.lab import pages, pins
from notelab.lab.lab import LAB_FILE, repository_root
from notelab.lab.lab_file import LabFile, LabTable, decode
from notelab.page import reading
from notelab.sources.answers import Source
from notelab.sources.git.url import check_url

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(?<!\.)\Z")
_CARRIED = Path(__file__).resolve().parents[1] / "labs"  # the labs that the wheel brings along


def from_lab(name: str, wanted: str, language: str, here: Path) -> list[str]:
    """Start a lab under the conditions of another, at its pins; return what to say.

    Raises:
        NotelabError: there is no such lab, it isn't in that language, or the folder is taken.
    """
    target, origin = _target(name, here), _origin(wanted, here)
    file = decode(origin / LAB_FILE, None)
    owner = origin / file.lab.sources_from if file.lab.sources_from else origin
    sources = decode(owner / LAB_FILE, None).sources
    if language not in file.lab.languages:
        known = ", ".join(file.lab.languages)
        raise NotelabError(f"{wanted} is not in {language!r}", hint=f"--language, one of: {known}")
    own = [note for note in [*file.notes, *file.diagrams] if not note.startswith("../")]
    kept = _tables(owner, "sources.") + _tables(origin, "notes.", "diagrams.")
    commits = {source: pins.read(source, owner / table.pin) for source, table in sources.items()}
    for pin in commits.values():
        if not pin.commit:
            raise NotelabError(f"{wanted} has no pin to start from: {pin.problem}")
    return _made(
        target,
        _head(file, language, _solution(origin, file, own, target)) + kept,
        {sources[source].pin: pin.commit for source, pin in commits.items()},
        {note: _title(origin / note, language) for note in own},
    )


def about(name: str, url: str, ref: str, language: str, mirrors: tuple[str, ...]) -> list[str]:
    """Start a lab about a repository (`.` is the one that the lab is in) at a ref.

    Raises:
        NotelabError: the repository has no such ref or can't be asked, or the folder is taken.
    """
    target, own = _target(name, Path.cwd()), url == "."
    root = repository_root(target.parent)
    called = root.name if own else url.rstrip("/").rpartition("/")[2]
    source = re.sub(r"[^A-Za-z0-9_-]+", "-", called.removesuffix(".git")).lstrip("-_0123456789")
    source = source.lower()[:40] or "source"
    title = {"en": f"Reading {source}", "es": f"Lectura de {source}"}[language]
    where = f"{'path' if own else 'url'} = {json.dumps(url)}"
    text = _lab_table(title, language)
    text += filled("repository", source=source, where=where)
    if not own:
        check_url(url)
    asked = Source(source, "" if own else url, "", own=str(root) * own)
    commit = open_bench(mirrors, source=source, anew=True).library.resolve(asked, ref)
    return _made(target, text, {f"{source}-sha.txt": commit}, {"reading.md": title})


def _target(name: str, here: Path) -> Path:
    """Return the folder of a new lab: the path given, or a name beside the repository's labs."""
    path = Path(name)
    if not _NAME.match(path.name) or len(name) > 1000 or not name.isprintable():
        raise NotelabError(
            f"{name[:80]!r} cannot name a lab",
            hint="up to 100 letters, digits, `-`, `_` and `.` can",
        )
    beside = repository_root(here) / "experiments"
    bare = len(path.parts) == 1 and beside.is_dir()
    target = (beside if bare else (here / path).parent).resolve() / path.name
    if os.path.lexists(target):
        raise NotelabError(f"{display_path(target)} is there already", hint="nothing was written")
    if not target.parent.is_dir():
        raise NotelabError(f"{display_path(target.parent)} is no folder", hint="make it first")
    return target


def _origin(wanted: str, here: Path) -> Path:
    """Return the lab's folder: a path, a folder's name in this repository, one brought along."""
    near = {folder.name: folder for folder in labs_below(repository_root(here))}
    carried = {folder.parent.name: folder.parent for folder in _CARRIED.glob(f"*/{LAB_FILE}")}
    known = carried | near
    folder = here / wanted if (here / wanted / LAB_FILE).is_file() else known.get(wanted)
    if folder is None:
        hint = "there are: " + ", ".join(sorted(known)) if known else ""
        raise NotelabError(f"no lab called {wanted[:80]!r} to start from", hint=hint)
    return folder.resolve()


def _solution(origin: Path, file: LabFile, own: list[str], target: Path) -> list[str]:
    """Return what a lab is compared with, as paths from `target`: a reference, or its notes."""
    root = repository_root(target)  # of a folder that is in none, itself
    places = [(origin / name).resolve() for name in file.lab.solution or own]
    there = [place for place in places if place.is_file() and place.is_relative_to(root)]
    return [Path(os.path.relpath(place, target)).as_posix() for place in there]


def _head(file: LabFile, language: str, solution: list[str]) -> str:
    table, headings = file.lab, file.lab.closing_heading
    own = table.max_lines if table.max_lines != LabTable("").max_lines else None
    said: dict[str, object] = {
        "solution": solution,
        "candidates": table.candidates if solution else [],
        "max-lines": own,
        "ignore": table.ignore,
    }
    said |= {f"closing-heading.{of}": heading for of, heading in headings.items()}
    return _lab_table(table.title, language, **said) + "\n"


def _lab_table(title: str, language: str, **said: object) -> str:
    """Return the head of a lab file, with what is said of it; nothing is not said."""
    said = {"title": title, "languages": [language], "in-progress": True} | said
    lines = [f"{key} = {json.dumps(one, ensure_ascii=False)}\n" for key, one in said.items() if one]
    text = "# When the notes here are done, as data. The grammar: docs/reference/lab-file.md\n\n"
    return text + "[lab]\n" + "".join(lines)


def _tables(folder: Path, *of: str) -> str:
    """Return tables of a lab file as they are written, but those of pages outside the lab."""
    parts = re.split(r"(?m)^(?=\[)", (folder / LAB_FILE).read_text("utf-8"))
    kept = [part for part in parts if part.lstrip("[").startswith(of) and '"../' not in part[:20]]
    return "".join(kept)


def _title(note: Path, language: str) -> str:
    """Return the title of a finished note, else what its file is called."""
    for place in (pages.translation_path(note, language), note):
        if place.is_file() and (title := reading.read(pages.read(place).text).front.title):
            return title
    return note.stem.replace("-", " ").capitalize()


def _made(target: Path, text: str, commits: dict[str, str], titles: dict[str, str]) -> list[str]:
    """Write the lab aside, read it as a check would, and put it in place in one step."""
    aside = target.with_name(f".{target.name}.{os.getpid()}.new")
    place = shlex.quote(display_path(target))
    try:
        aside.mkdir()
        _write(aside / LAB_FILE, text)
        for name, commit in commits.items():
            _write(aside / name, pins.format_pin(commit))
        lab = lab_file.load(aside)
        at = {source: commits[table.pin] for source, table in lab.sources.items()}
        for name, title in titles.items():
            _write(aside / name, blank_page(lab, name, title, at, place))
        aside.rename(target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    lines = [
        f"{display_path(target)}/",
        *(f"  {name}" for name in sorted([LAB_FILE, *commits, *titles])),
    ]
    return [*lines, f"next: read, write, and see how far you are: `shardbook check {place}`"]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8", newline="\n")
