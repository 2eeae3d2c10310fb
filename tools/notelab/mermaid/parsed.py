"""The result of parsing a diagram."""

import msgspec

from notelab.errors import NotelabError


class Parsed(msgspec.Struct, frozen=True):
    """The result of parsing one diagram.

    `type` is mermaid's name for the type without its version: flowchart, sequence, gantt, class,
    state. `labels` are the texts that a reader sees, each as often as it is drawn, without markup.
    `line` counts from 1 within the diagram's text. `settled` is False if the result depends on this
    run (out of time or memory) and must not be cached.
    """

    ok: bool
    type: str = ""
    labels: list[str] = []
    error: str | None = None
    line: int | None = None
    settled: bool = True


class EngineMissing(NotelabError):  # noqa: N818 (it says what is the matter)
    """There is no script engine or no bundle to run mermaid with, so diagrams cannot be checked."""
