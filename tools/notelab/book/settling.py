"""What the citations of pages mean once the sources' trees were asked.

A page says what it cites in its own form: the end of a path, a symbol, a tag, a link from where the
page stands. Here each gets the path and the lines that it means, so that whoever checks, locks,
shows or carries citations sees them in one form; `text` stays as it is written.
"""

import posixpath
from collections.abc import Callable, Iterable

import msgspec

from notelab.book.evidence import CitedFile, Evidence, State
from notelab.book.resolve import Resolver
from notelab.book.view import View
from notelab.lab.lab import Lab
from notelab.lab.lock import Lock
from notelab.lab.pins import Pin
from notelab.page.citation import Citation
from notelab.page.note import FileLink, Note, ProseBlock
from notelab.page.permalink import is_commit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from notelab.sources.library import Library

Change = Callable[[Citation], Citation]


class Settling:
    """Settles the citations of one lab, before its evidence is gathered and after."""

    def __init__(
        self,
        lab: Lab,
        pins: dict[str, Pin],
        lock: Lock | None,
        evidence: Evidence,
        resolver: Resolver,
        *,
        library: "Library",
    ) -> None:
        """Ask nobody yet."""
        self._lab, self._pins, self._lock = lab, pins, lock or Lock()
        self._evidence, self._resolver, self._library = evidence, resolver, library
        self._tags: dict[tuple[str, str], bool | None] = {}
        self._trees: dict[str, frozenset[str]] = {}
        self._asked: dict[tuple[str, str], list[CitedFile]] = {}

    def before(self, views: list[View]) -> list[View]:
        """Say which file a link from a page leads to, and whether a tag is the pin's."""
        own = next((name for name, table in self._lab.sources.items() if table.path), "")

        def settle(view: View) -> Change:
            def change(one: Citation) -> Citation:
                if one.relative and not one.source:
                    return self._from_the_page(one, view, own)
                ref = one.tag or one.commit
                if one.repository and not one.problem and not is_commit(ref):
                    return self._tagged(one, ref)
                return one

            return change

        return [_changed(view, settle(view)) for view in views]

    def after(self, views: list[View]) -> list[View]:
        """Say which file the end of a path means and which lines a symbol; files are gathered."""
        short = [one for one in _citations(views) if self._is_end(one)]
        ends = map(self._ends_of, short)
        self._evidence.gather(found[0] for found in ends if len(found) == 1)
        named = any(one.symbol for one in _citations(views))
        if not short and not named:
            return views

        def change(one: Citation) -> Citation:
            if not one.problem and self._is_end(one):
                one = self._whole(one)
            return self._lines(one) if one.symbol and not one.problem else one

        return [_changed(view, change) for view in views]

    def knows(self, path: str) -> bool:
        """Tell whether a path, or the end of one, is a file's of a source at its pin.

        The lock, the files that were gathered and clones on disk are asked, and no remote.
        """
        named = path.partition(":")[2] if path.partition(":")[0] in self._pins else path
        ending = f"/{named}"
        for name, pin in self._pins.items():
            if pin.commit and any(f"/{one}".endswith(ending) for one in self._names(name)):
                return True
        return False

    def _names(self, source: str) -> frozenset[str]:
        if source not in self._trees:
            known = self._lock.sources.get(source)
            there = (State.PROVED, State.LOCKED)
            names = {one.path for one in self._evidence.gathered() if one.state in there}
            git = self._library.clone(self._evidence.source(source))
            if git:
                from notelab.sources.git.tree import all_names

                names |= set(all_names(git, self._pins[source].commit))
            self._trees[source] = frozenset(names | set(known.files if known else ()))
        return self._trees[source]

    def _from_the_page(self, one: Citation, view: View, own: str) -> Citation:
        if not own:
            said = "links to lines of a file that no pin holds; cite them, or link to the file"
            return msgspec.structs.replace(one, problem=one.problem or said)
        folder = view.page.path.parent.relative_to(self._lab.root).as_posix()
        path = posixpath.normpath(posixpath.join(folder, one.path))
        problem = "leads out of the repository" if path.startswith("../") else ""
        return msgspec.structs.replace(one, path=path, source=own, problem=one.problem or problem)

    def _tagged(self, one: Citation, ref: str) -> Citation:
        """Put the pin in the place of a tag that a clone, or lab.toml, says is the pin's."""
        for name in self._resolver.of_repository(one):
            if self._is_tag(name, ref):
                return msgspec.structs.replace(one, commit=self._pins[name].commit, tag=ref)
            if self._tags[name, ref] is None:
                said = f"is a link to `{ref[:40]}`, which moves; link to the commit"
                return msgspec.structs.replace(one, problem=said)
        return msgspec.structs.replace(one, commit=ref)

    def _is_tag(self, name: str, ref: str) -> bool | None:
        """Tell whether a tag is the pin's; None where it is no tag that anybody here knows."""
        if (name, ref) not in self._tags:
            pin = self._pins[name].commit
            answer = True if pin and self._lab.sources[name].release == ref else None
            git = self._library.clone(self._evidence.source(name)) if pin else None
            if git:
                ran = git.run("rev-parse", "--verify", f"refs/tags/{ref}^{{commit}}")
                found = ran.out.decode("ascii", "replace").strip()
                answer = found == pin if ran.status == 0 else answer
            self._tags[name, ref] = answer
        return self._tags[name, ref]

    def _is_end(self, one: Citation) -> bool:
        """Tell whether a citation's path is none from the root of its sources."""
        if one.problem or one.repository or one.relative:
            return False
        return bool(self._ends_of(one))

    def _ends_of(self, one: Citation) -> list[tuple[str, str]]:
        """Return the source and path of every file whose path ends in a citation's."""
        key = one.source, one.path
        if key not in self._asked:
            resolved = self._resolver.resolve(one)
            done = resolved.file or resolved.rivals or resolved.sole
            self._asked[key] = [] if done else resolved.asked
        asked = self._asked[key]
        found = [(file.source, path) for file in asked for path in file.ends]
        return found or (self._locked(one) if asked and not _denied(asked) else [])

    def _locked(self, one: Citation) -> list[tuple[str, str]]:
        """Return the files whose path ends so and whose lines the lock knows as cited.

        Only where nobody here has the tree: the tree was asked when the lock was made.
        """
        return [
            (name, path)
            for name, known in self._lock.sources.items()
            if name in self._pins and known.commit == self._pins[name].commit
            for path in known.files
            if path.endswith(f"/{one.path}") and one.source in ("", name)
            if self._lock.citation(name, msgspec.structs.replace(one, path=path).key_in(name))
        ]

    def _whole(self, one: Citation) -> Citation:
        ends = self._ends_of(one)
        if len(ends) == 1:
            return msgspec.structs.replace(one, path=ends[0][1])
        listed = ", ".join(f"`{path}`" for _, path in ends[:3])
        said = f"gives the end of {len(ends)} paths ({listed}); write the whole one"
        return msgspec.structs.replace(one, problem=said)

    def _lines(self, one: Citation) -> Citation:
        """Look up the lines of a symbol, in a file whose text is at hand."""
        file = self._resolver.resolve(one).file
        if file is None:
            return one
        if file.outline is None or not file.outline.structured:
            said = "names a symbol, and the file's text is not at hand or has no structure rule"
            return msgspec.structs.replace(one, problem=said)
        name = one.symbol.replace("::", ".")
        known = [(each.name.replace("::", "."), each) for each in file.outline.symbols]
        found = [each for full, each in known if full == name]
        found = found or [each for full, each in known if full.endswith(f".{name}")]
        if len(found) != 1:
            what = "no symbol" if not found else f"{len(found)} symbols"
            return msgspec.structs.replace(one, problem=f"names {what} of `{one.path}`")
        return msgspec.structs.replace(one, first=found[0].top, last=found[0].last)


def files_of(
    links: Iterable[FileLink], pins: dict[str, Pin], resolver: Resolver
) -> list[tuple[str, str]]:
    """Return the source and path of each file link that is to a source at its pin."""
    return [
        (name, link.path)
        for link in links
        for name in resolver.of_repository(link)
        if pins[name].commit.startswith(link.commit)
    ]


def _denied(asked: list[CitedFile]) -> bool:
    """Tell whether a tree was asked and has no such path."""
    return any(file.state is State.ABSENT for file in asked)


def _citations(views: list[View]) -> Iterable[Citation]:
    return (one for view in views if view.note for one in view.note.citations)


def _changed(view: View, change: Change) -> View:
    """Return a page with its citations as `change` makes them; the same page where none changes."""
    note = view.note
    if note is None or all(change(one) is one for one in note.citations):
        return view

    def cells(before: list[ProseBlock]) -> list[ProseBlock]:
        return [
            msgspec.structs.replace(cell, citations=[change(one) for one in cell.citations])
            for cell in before
        ]

    made: Note = msgspec.structs.replace(
        note, choices=cells(note.choices), outside_choices=cells(note.outside_choices)
    )
    return msgspec.structs.replace(view, note=made)
