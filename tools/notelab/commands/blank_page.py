"""Renders the blank page of a note: its headings, each with a comment on what is expected."""

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
