"""N124: checks that the release that lab.toml names is the tag at the pin."""

from collections.abc import Iterator

from notelab.book.workbook import Workbook
from notelab.errors import display_path
from notelab.finding import Finding, find_text
from notelab.lab.lab import LAB_FILE
from notelab.lab.pins import format_command


def findings(book: Workbook) -> Iterator[Finding]:
    """Compare each source's release with its pin, if the source's tags can be read."""
    for name, pin in book.pins.items():
        release = book.lab.sources[name].release
        source, library = book.evidence.source(name), book.evidence.library
        tag = library.release_tag(source) if release and pin.commit else None
        if tag is None or tag.commit == pin.commit:
            continue
        path = book.lab.pins_folder / LAB_FILE
        at_pin = [f"`{tag_name}`" for tag_name in library.tags_at(source)[:3]]
        command = format_command(pin, release)
        yield Finding(
            "N124",
            display_path(path),
            find_text(path, f'"{release}"', f"[sources.{name}]"),
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
