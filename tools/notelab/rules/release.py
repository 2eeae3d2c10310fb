"""N124: checks that the release that lab.toml names is the tag at the pin."""

from collections.abc import Iterator
from pathlib import Path

from notelab.book.workbook import Workbook
from notelab.errors import display_path
from notelab.finding import TOP, Finding
from notelab.lab.lab import LAB_FILE
from notelab.lab.pins import format_command
from notelab.page.citation import Span


def findings(book: Workbook) -> Iterator[Finding]:
    """Compare each source's release with its pin, if the source's tags can be read."""
    for name, pin in book.pins.items():
        release = book.lab.sources[name].release
        tag = book.evidence.release_tag(name) if release and pin.commit else None
        if tag is None or tag.commit == pin.commit:
            continue
        path = book.lab.pins_folder / LAB_FILE
        at_pin = [f"`{tag_name}`" for tag_name in book.evidence.tags_at(name)[:3]]
        command = format_command(pin, release)
        yield Finding(
            "N124",
            display_path(path),
            _find_release_line(path, name),
            f"the release of `{name}` is not a tag of its pin",
            expected=f"a tag of commit {pin.commit[:12]}",
            found=f"{tag.who} says that `{release}` is {tag.commit[:12]}"
            if tag.commit
            else f"{tag.who} has no tag `{release}`",
            help=(f"tag at the pin: {', '.join(at_pin)}; " if at_pin else "")
            + (
                f"`{command}` pins the tag's commit"
                if tag.commit
                else "write the pin's tag as `release`"
            ),
        )


def _find_release_line(path: Path, source: str) -> Span:
    """Return the line of a lab file that names a source's release, else the top of the file."""
    in_source_table = False
    for row, line in enumerate(path.read_text("utf-8").split("\n"), start=1):
        if line.lstrip().startswith("["):
            in_source_table = line.strip().startswith(f"[sources.{source}]")
        elif in_source_table and line.lstrip().startswith("release"):
            return Span(row, 1, row, len(line) + 1)
    return TOP
