"""The blank page of a note: its headings, and as comments what is wanted under each."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template

from notelab.lab.lab import Lab
from notelab.lab.lab_file import DiagramTable, NoteTable

TEMPLATES = Path(__file__).with_name("blank")
_WORDS = {
    "en": {
        "choices": "at least {} choices with a citation each",
        "choice-words": "{} to {} words a choice",
        "words": "at most {} words in all",
        "diagrams": "{} diagrams",
        "labels": "To be drawn in it: {}.",
        "lines": "At most {} lines.",
        "none": "what you find",
    },
    "es": {
        "choices": "al menos {} decisiones, cada una con una cita",
        "choice-words": "de {} a {} palabras por decisión",
        "words": "como mucho {} palabras en total",
        "diagrams": "{} diagramas",
        "labels": "Lo que debe dibujarse: {}.",
        "lines": "Como mucho {} líneas.",
        "none": "lo que encuentres",
    },
}


def filled(template: str, **values: str) -> str:
    """Return a template of the folder with its places filled in."""
    return Template((TEMPLATES / f"{template}.txt").read_text("utf-8")).substitute(values)


def blank_page(lab: Lab, name: str, title: str, pins: dict[str, str], place: str) -> str:
    """Return the blank page of one note of a lab, in its first language.

    `pins` has each source's commit, and `place` is the lab's folder as a command names it.
    """
    language = lab.languages[0]
    note = lab.file.notes.get(name, NoteTable())
    diagrams = lab.file.diagrams.get(name, DiagramTable([])).expect
    sources = note.sources or list(lab.sources)
    asked: dict[str, Sequence[object]] = {
        "choices": [note.min_choices],
        "choice-words": note.choice_words or (),
        "words": [note.max_words],
        "diagrams": [len(diagrams)],
    }
    limits = ", ".join(_said(language, asked)) or _WORDS[language]["none"]
    commits = "\n".join(f"  {source}: {pins[source][:12]}" for source in sources)
    title = title.replace('"', "'")
    text = filled(f"page.{language}", title=title, commits=commits, limits=limits)
    if note.min_choices or note.choice_words:
        text += filled(f"choices.{language}", source=sources[0], lab=place)
    for diagram in diagrams:
        labels = ", ".join(diagram.labels_in(language))
        wanted = " ".join(_said(language, {"labels": [labels], "lines": [diagram.max_lines]}))
        drawing = _drawing(diagram.type, language)
        text += filled(f"diagram.{language}", id=diagram.id, wanted=wanted, drawing=drawing)
    mentions = ", ".join(note.closing_mentions.get(language, []))
    if mentions:
        heading = lab.closing_heading(language)
        text += filled(f"closing.{language}", heading=heading, mentions=mentions)
    return text


def _said(language: str, asked: Mapping[str, Sequence[object]]) -> Iterator[str]:
    """Yield what is asked for in words; nought and nothing are not."""
    for key, values in asked.items():
        if any(values):
            yield _WORDS[language][key].format(*values)


def _drawing(type: str, language: str) -> str:
    """Return a diagram of a type that mermaid draws as it is written, where one is at hand."""
    template = f"{type or 'flowchart'}.{language}"
    return filled(template) if (TEMPLATES / f"{template}.txt").is_file() else f"{type}\n"
