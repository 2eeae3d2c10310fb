"""What is known about a diagram once mermaid has read it."""

import msgspec

from notelab.errors import NotelabError


class Parsed(msgspec.Struct, frozen=True):
    """The outcome of parsing one diagram.

    `type` is mermaid's name for it without its versions: flowchart, sequence, gantt, class, state.
    `labels` are the texts a reader sees drawn, each as often as it is drawn, markup removed.
    `line` counts from 1 within the diagram's text. `settled` is False where the outcome hangs on
    this run (time or memory ran out), so that it is not worth remembering.
    """

    ok: bool
    type: str = ""
    labels: list[str] = []
    error: str | None = None
    line: int | None = None
    settled: bool = True


class EngineMissing(NotelabError):  # noqa: N818 (it says what is the matter)
    """No script engine, or no bundle, to run mermaid with: diagrams can't be checked here."""
