"""`shardbook new`: creates a lab with the conditions of another, or about any repository.

A blank page has the headings of a note, each with a comment on what is expected.
"""

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from string import Template

from notelab.book.discovery import labs_below
from notelab.book.opening import open_session
from notelab.errors import NotelabError, display_path
from notelab.lab import lab as lab_file
from notelab.lab import pages, pins
from notelab.lab.lab import LAB_FILE, Lab, repository_root
from notelab.lab.lab_file import DiagramTable, LabFile, LabTable, NoteTable, decode
from notelab.page import reading
from notelab.sources.answers import Source
from notelab.sources.git.url import check_url

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(?<!\.)\Z")
_BUNDLED = Path(__file__).resolve().parents[1] / "labs"  # the labs in an installed wheel


def from_lab(name: str, wanted: str, language: str, here: Path) -> list[str]:
    """Create a lab with the conditions and pins of another; return what was done.

    Raises:
        NotelabError: there is no such lab, that is no language, or the folder exists.
    """
    _check_language(language)
    target, origin = _target_folder(name, here), _origin_folder(wanted, here)
    file = decode(origin / LAB_FILE)
    owner = origin / file.lab.sources_from if file.lab.sources_from else origin
    sources = decode(owner / LAB_FILE).sources
    own_pages = [note for note in [*file.notes, *file.diagrams] if not note.startswith("../")]
    tables = _copy_tables(owner, "sources.")
    tables += _add_language(_copy_tables(origin, "notes.", "diagrams."), file, language)
    commits = {source: pins.read(source, owner / table.pin) for source, table in sources.items()}
    for pin in commits.values():
        if not pin.commit:
            raise NotelabError(f"{wanted} has no pin to start from: {pin.problem}")
    return _create_lab(
        target,
        _head(origin, file, language, _solution_pages(origin, file, own_pages, target), target)
        + tables,
        {sources[source].pin: pin.commit for source, pin in commits.items()},
        {note: _title(origin / note, language) for note in own_pages},
    )


def about(name: str, url: str, ref: str, language: str, mirrors: tuple[str, ...]) -> list[str]:
    """Create a lab about a repository at a ref; `.` is the repository that the lab is in.

    Raises:
        NotelabError: the repository has no such ref or can't be asked, or the folder exists.
    """
    _check_language(language)
    target, is_own = _target_folder(name, Path.cwd()), url == "."
    root = repository_root(target.parent)
    called = root.name if is_own else url.rstrip("/").rpartition("/")[2]
    source = re.sub(r"[^A-Za-z0-9_-]+", "-", called.removesuffix(".git")).lstrip("-_0123456789")
    source = source.lower()[:40] or "source"
    titles = {"en": f"Reading {source}", "es": f"Lectura de {source}"}
    title = titles.get(language, titles["en"])
    where = f"{'path' if is_own else 'url'} = {json.dumps(url)}"
    text = _lab_table(title, language)
    text += fill_template("repository", source=source, where=where)
    if not is_own:
        check_url(url)
    new_source = Source(source, "" if is_own else url, "", local_repository=str(root) * is_own)
    library = open_session(mirrors, sources=[source], refresh=True).library
    try:
        commit = library.resolve(new_source, ref)
    except NotelabError as fault:
        hint = "commit something first, or name another --ref" if is_own else fault.hint
        raise NotelabError(str(fault), hint=hint) from None
    return _create_lab(target, text, {f"{source}-sha.txt": commit}, {"reading.md": title})


def _check_language(language: str) -> None:
    if not lab_file.LANGUAGE.match(language):
        raise NotelabError(f"{language[:40]!r} is no language", hint="give two letters, as in `fr`")


def _add_language(tables: str, file: LabFile, language: str) -> str:
    """Return the tables of notes with the closing's mentions in a language that the lab lacks."""
    if language in file.lab.languages:
        return tables
    mentions = rf"(?m)^closing-mentions = \{{(.*?)\b{file.lab.languages[0]} = (\[[^]]*\])"
    return re.sub(mentions, rf"closing-mentions = {{\1{language} = \2", tables)


def _target_folder(name: str, here: Path) -> Path:
    """Return the folder of a new lab: the given path, or a name in the folder experiments/."""
    path = Path(name)
    if not _NAME.match(path.name) or len(name) > 1000 or not name.isprintable():
        raise NotelabError(
            f"{name[:80]!r} cannot name a lab",
            hint="use up to 100 letters, digits, `-`, `_` and `.`",
        )
    experiments = repository_root(here) / "experiments"
    bare = len(path.parts) == 1 and experiments.is_dir()
    target = (experiments if bare else (here / path).parent).resolve() / path.name
    if os.path.lexists(target):
        raise NotelabError(f"{display_path(target)} already exists", hint="nothing was written")
    nearest = next(folder for folder in target.parents if os.path.lexists(folder))
    if not nearest.is_dir():
        raise NotelabError(f"{display_path(nearest)} is not a folder", hint="nothing was written")
    return target


def _origin_folder(wanted: str, here: Path) -> Path:
    """Return the folder of a lab that is given by path or name, in this repository or the wheel."""
    labs_here = {folder.name: folder for folder in labs_below(repository_root(here))}
    bundled = {folder.parent.name: folder.parent for folder in _BUNDLED.glob(f"*/{LAB_FILE}")}
    labs = bundled | labs_here
    folder = here / wanted if (here / wanted / LAB_FILE).is_file() else labs.get(wanted)
    if folder is None:
        hint = "the labs are: " + ", ".join(sorted(labs)) if labs else ""
        raise NotelabError(f"no lab called {wanted[:80]!r} to start from", hint=hint)
    return folder.resolve()


def _solution_pages(origin: Path, file: LabFile, own_pages: list[str], target: Path) -> list[str]:
    """Return the pages that a lab is compared with, as paths from `target`."""
    root = repository_root(target)  # the folder itself, if it is in no repository
    places = [(origin / name).resolve() for name in file.lab.solution or own_pages]
    existing = [place for place in places if place.is_file() and place.is_relative_to(root)]
    return [Path(os.path.relpath(place, target)).as_posix() for place in existing]


def _earlier_pages(origin: Path, file: LabFile, target: Path) -> list[str]:
    """Return the globs of `before` as globs from `target`, if its repository has the pages."""
    globs = []
    for glob in file.lab.before:
        base, pattern = pages.split_glob(origin, glob)
        if not base.is_relative_to(repository_root(target)) or not any(base.glob(pattern)):
            return []
        globs.append((Path(os.path.relpath(base, target)) / pattern).as_posix())
    return globs


def _head(origin: Path, file: LabFile, language: str, solution: list[str], target: Path) -> str:
    table, headings = file.lab, file.lab.closing_heading
    max_lines = table.max_lines if table.max_lines != LabTable("").max_lines else None
    settings: dict[str, object] = {
        "solution": solution,
        "candidates": table.candidates if solution else [],
        "max-lines": max_lines,
        "ignore": table.ignore,
    }
    if before := _earlier_pages(origin, file, target):
        settings |= {"min-new-choices": table.min_new_choices, "before": before}
    settings |= {f"closing-heading.{of}": heading for of, heading in headings.items()}
    heading = ""
    if not {**lab_file.DEFAULT_CLOSINGS, **headings}.get(language):
        heading = f'closing-heading.{language} = ""  # fill in: the heading that closes a note\n'
    return _lab_table(table.title, language, **settings) + heading + "\n"


def _lab_table(title: str, language: str, **settings: object) -> str:
    """Return the [lab] table of a lab file; empty settings are left out."""
    settings = {"title": title, "languages": [language], "in-progress": True} | settings
    lines = [
        f"{key} = {json.dumps(value, ensure_ascii=False)}\n"
        for key, value in settings.items()
        if value
    ]
    text = "# What the notes of this lab must hold. The fields: `shardbook explain lab-file`\n\n"
    return text + "[lab]\n" + "".join(lines)


def _copy_tables(folder: Path, *of: str) -> str:
    """Return tables of a lab file as they are written, except those of pages outside the lab."""
    parts = re.split(r"(?m)^(?=\[)", (folder / LAB_FILE).read_text("utf-8"))
    tables = [part for part in parts if part.lstrip("[").startswith(of) and '"../' not in part[:20]]
    return "".join(tables)


def _title(note: Path, language: str) -> str:
    """Return the title of a finished note, or else its file's name as a title."""
    for place in (pages.translation_path(note, language), note):
        if place.is_file() and (title := reading.read(pages.read(place).text).front.title):
            return title
    return note.stem.replace("-", " ").capitalize()


def _create_lab(
    target: Path, text: str, commits: dict[str, str], titles: dict[str, str]
) -> list[str]:
    """Write the lab under another name, read it as a check would, and then rename it."""
    scratch = target.with_name(f".{target.name}.{os.getpid()}.new")
    place = shlex.quote(display_path(target))
    new_folders = [folder for folder in target.parents if not folder.exists()]
    try:
        scratch.mkdir(parents=True)
        _write(scratch / LAB_FILE, text)
        for name, commit in commits.items():
            _write(scratch / name, pins.format_pin(commit))
        lab = lab_file.load(scratch)
        at = {source: commits[table.pin] for source, table in lab.sources.items()}
        for name, title in titles.items():
            _write(scratch / name, blank_page(lab, name, title, at, place))
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        for folder in new_folders:
            with suppress(OSError):  # it holds the lab
                folder.rmdir()
    lines = [
        f"{display_path(target)}/",
        *(f"  {name}" for name in sorted([LAB_FILE, *commits, *titles])),
    ]
    return [*lines, f"next: read the source, write the notes, then `shardbook check {place}`"]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8", newline="\n")


TEMPLATES = Path(__file__).with_name("blank")
_WORDS = {
    "en": {
        "choices": "at least {} choices with a citation each",
        "choice-words": "{} to {} words a choice",
        "words": "at most {} words in all",
        "diagrams": "{} diagrams",
        "labels": "It must show: {}.",
        "lines": "At most {} lines.",
        "none": "what you find",
    },
    "es": {
        "choices": "al menos {} decisiones, cada una con una cita",
        "choice-words": "de {} a {} palabras por decisión",
        "words": "como mucho {} palabras en total",
        "diagrams": "{} diagramas",
        "labels": "Debe mostrar: {}.",
        "lines": "Como mucho {} líneas.",
        "none": "lo que encuentres",
    },
}


def fill_template(template: str, **values: str) -> str:
    """Return a template with its placeholders replaced by the values."""
    return Template((TEMPLATES / f"{template}.txt").read_text("utf-8")).substitute(values)


def blank_page(lab: Lab, name: str, title: str, pins: dict[str, str], place: str) -> str:
    """Return the blank page of one note of a lab; its hints are in English or Spanish.

    `pins` has the commit of each source; `place` is the lab's folder as commands name it.
    """
    language = lab.languages[0] if lab.languages[0] in _WORDS else "en"
    note = lab.file.notes.get(name, NoteTable())
    diagrams = lab.file.diagrams.get(name, DiagramTable([])).expect
    sources = note.sources or list(lab.sources)
    conditions: dict[str, Sequence[object]] = {
        "choices": [note.min_choices],
        "choice-words": note.choice_words or (),
        "words": [note.max_words],
        "diagrams": [len(diagrams)],
    }
    limits = ", ".join(_describe(language, conditions)) or _WORDS[language]["none"]
    commits = "\n".join(f"  {source}: {pins[source][:12]}" for source in sources)
    title = title.replace('"', "'")
    text = fill_template(f"page.{language}", title=title, commits=commits, limits=limits)
    if note.min_choices or note.choice_words:
        text += fill_template(f"choices.{language}", source=sources[0], lab=place)
    for diagram in diagrams:
        labels = ", ".join(diagram.labels_in(lab.languages[0]))
        wanted = " ".join(_describe(language, {"labels": [labels], "lines": [diagram.max_lines]}))
        drawing = _sample_diagram(diagram.type, language)
        text += fill_template(f"diagram.{language}", id=diagram.id, wanted=wanted, drawing=drawing)
    mentions = ", ".join(note.closing_mentions.get(lab.languages[0], []))
    if mentions:
        heading = lab.closing_heading(lab.languages[0]) or "…"
        text += fill_template(f"closing.{language}", heading=heading, mentions=mentions)
    return text


def _describe(language: str, conditions: Mapping[str, Sequence[object]]) -> Iterator[str]:
    """Yield each condition in words, except those that are empty or zero."""
    for key, values in conditions.items():
        if any(values):
            yield _WORDS[language][key].format(*values)


def _sample_diagram(type: str, language: str) -> str:
    """Return a sample diagram of a type, or only the type if there is no sample."""
    template = f"{type or 'flowchart'}.{language}"
    return fill_template(template) if (TEMPLATES / f"{template}.txt").is_file() else f"{type}\n"
