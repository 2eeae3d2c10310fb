"""Gives each citation the path and lines that it means, using the trees of the sources.

A page may cite in several forms: by the end of a path, a symbol, a tag, or a link relative to the
page. Here each citation gets its full path and its lines, so that checking, locking, showing and
repinning see a single form. The citation's `text` stays as it is written.
"""

import posixpath
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from notelab.book.evidence import CitedFile, Evidence, State
from notelab.book.resolve import Resolver
from notelab.cited.nearest_range import find_symbols
from notelab.lab.lab import Lab
from notelab.lab.lock import Lock
from notelab.lab.pages import ParsedPage
from notelab.lab.pins import Pin
from notelab.lines import split_lines
from notelab.page.citation import Citation
from notelab.page.note import FileLink, Note, ProseBlock
from notelab.sources.answers import WORKTREE, Offered
from notelab.sources.git.url import is_commit

Change = Callable[[Citation], Citation | None]  # None: it is no citation


class Settling:
    """Settles the citations of one lab: links before its evidence is gathered, paths afterwards."""

    def __init__(
        self,
        lab: Lab,
        pins: dict[str, Pin],
        lock: Lock | None,
        evidence: Evidence,
        resolver: Resolver,
    ) -> None:
        """Remember the lab; nothing is asked yet."""
        self._lab, self._pins, self._lock = lab, pins, lock or Lock()
        self._evidence, self._resolver = evidence, resolver
        self._refs: dict[tuple[str, str], bool | None] = {}
        self._paths: dict[str, frozenset[str]] = {}
        self._candidates: dict[tuple[str, str], list[CitedFile]] = {}
        self._own = next((name for name, table in lab.sources.items() if table.path), "")

    def resolve_links(self, views: list[ParsedPage]) -> list[ParsedPage]:
        """Resolve links that are relative to a page, and tags and branches that name the pin."""

        def settle(view: ParsedPage) -> Change:
            def change(citation: Citation) -> Citation | None:
                if citation.form == "maybe":
                    form = "symbol" if citation.symbol else "code"
                    is_known = self.knows(citation.path)
                    return msgspec.structs.replace(citation, form=form) if is_known else None
                is_dotted = citation.path.startswith(("./", "../")) and self._own
                if (citation.relative or is_dotted) and not citation.source:
                    return self._resolve_relative(citation, view)
                ref = citation.tag or citation.commit
                if not citation.repository or citation.problem:
                    return citation
                own = self._own in self._resolver.of_repository(citation)
                if own and self._pins[self._own].commit == WORKTREE:
                    return self._resolve_own(citation, ref)
                return citation if is_commit(ref) else self._resolve_ref(citation, ref)

            return change

        return [_map_citations(view, settle(view)) for view in views]

    def resolve_paths(self, views: list[ParsedPage]) -> list[ParsedPage]:
        """Resolve ends of paths and symbols, once the files are gathered.

        A path such as `node.js` that no source has is no citation if the trees say so.
        """
        self._paths.clear()  # more files are known now
        views = [_map_citations(view, self._keep_paths) for view in views]
        path_ends = [
            (ends, citation, view)
            for view in (views if any(self._candidates.values()) else ())
            for citation in (view.note.citations if view.note else ())
            if not citation.problem and (ends := self._find_ends(citation))
        ]
        chosen = (self._choose_end(*each) for each in path_ends)
        self._evidence.gather(ends[0] for ends in chosen if len(ends) == 1)
        has_symbols = any(citation.symbol for citation in _list_citations(views))
        if not path_ends and not has_symbols:
            return views

        def settle(view: ParsedPage) -> Change:
            def change(citation: Citation) -> Citation:
                citation = self._complete_path(citation, view)
                is_done = citation.problem or not citation.symbol
                return citation if is_done else self._find_lines(citation)

            return change

        return [_map_citations(view, settle(view)) for view in views]

    def _keep_paths(self, citation: Citation) -> Citation | None:
        files = self._list_candidates(citation)
        if citation.problem or citation.source in self._pins or not (files or citation.source):
            return citation
        from notelab.page.citation_syntax import is_only_a_word  # its patterns are rarely needed

        trees = [file.has_kin or bool(file.ends) for file in files if file.state is State.ABSENT]
        has_kin = any(trees) if any(trees) or 0 < len(trees) == len(files) else None
        return None if is_only_a_word(citation, has_kin=has_kin) else citation

    def _choose_end(
        self, ends: list[tuple[str, str]], citation: Citation, view: ParsedPage
    ) -> list[tuple[str, str]]:
        """Return the file next to the page if it is one of several with the same end, else all."""
        next_to_page = (
            self._own,
            posixpath.normpath(posixpath.join(self._folder(view), citation.path)),
        )
        return [next_to_page] if next_to_page in ends else ends

    def _folder(self, view: ParsedPage) -> str:
        return view.page.path.parent.relative_to(self._lab.root).as_posix()

    def knows(self, path: str) -> bool:
        """Tell whether a source has, at its pin, a file whose path is or ends in `path`.

        The lock, the gathered files and clones on disk are searched; no remote is asked.
        """
        named = path.partition(":")[2] if path.partition(":")[0] in self._pins else path
        return any(
            named in self._list_paths(name) for name, pin in self._pins.items() if pin.commit
        )

    def _list_paths(self, source: str) -> frozenset[str]:
        """Return the paths of a source that are known here, and all ends of them."""
        if source not in self._paths:
            locked = self._lock.sources.get(source)
            present = (State.PROVED, State.LOCKED)
            names = {file.path for file in self._evidence.list_files() if file.state in present}
            names |= set(self._evidence.library.list_names(self._evidence.source(source)))
            names |= set(locked.files if locked else ())
            ends = (path.split("/", at)[at] for path in names for at in range(path.count("/") + 1))
            self._paths[source] = frozenset(ends)
        return self._paths[source]

    def _resolve_relative(self, citation: Citation, view: ParsedPage) -> Citation:
        if not self._own:
            reason = "links to lines of a file that is in no source; link to the whole file"
            return msgspec.structs.replace(citation, problem=citation.problem or reason)
        path = posixpath.join("/", self._folder(view), citation.path)
        path = posixpath.normpath(path).lstrip("/")
        climbs = posixpath.normpath(posixpath.join(self._folder(view), citation.path))
        problem = "leads out of the repository" if climbs.startswith("../") else ""
        if citation.relative:  # of another form, the problem is only that the path has dots
            problem = citation.problem or problem
        return msgspec.structs.replace(citation, path=path, source=self._own, problem=problem)

    def _resolve_ref(self, citation: Citation, ref: str) -> Citation:
        """Replace a tag, or one's own branch, by the pin if a clone or lab.toml says that it is."""
        folders = citation.path.split("/")[:-1]
        # The name of a tag or branch may have slashes, which look like folders.
        refs = ["/".join([ref, *folders[:count]]) for count in range(min(len(folders), 3) + 1)]
        for name in self._resolver.of_repository(citation):
            known_ref = next((each for each in refs if self._is_pin(name, each) is not None), "")
            if not known_ref:
                problem = f"is a link to `{ref[:40]}`, which moves; link to the commit"
                return msgspec.structs.replace(citation, problem=problem)
            if self._is_pin(name, known_ref):
                path = "/".join(citation.path.split("/")[known_ref.count("/") - ref.count("/") :])
                commit = self._pins[name].commit
                return msgspec.structs.replace(citation, commit=commit, tag=known_ref, path=path)
        return msgspec.structs.replace(citation, commit=ref)

    def _resolve_own(self, citation: Citation, ref: str) -> Citation:
        """Read a permalink to a repository whose source is its working tree.

        A branch follows the working tree. The lines at a tag or commit must be those of the working
        tree; if this clone lacks the commit, the lock decides.
        """
        source = self._evidence.source(self._own)
        git = self._evidence.library.clone(source)
        settled = msgspec.structs.replace(citation, commit=WORKTREE, tag=ref)
        full = ref if is_commit(ref) else f"refs/tags/{ref}"
        ran = git.run("cat-file", "blob", f"{full}:{citation.path}") if git else None
        if ran is None or ran.status or settled == citation:
            return settled
        from notelab.sources.git.git_files import offer_from_worktree

        root = Path(source.local_repository)
        answer = offer_from_worktree(root, {citation.path: None})[citation.path]
        new = split_lines(answer.data) if isinstance(answer, Offered) else []
        lines = slice(citation.first - 1, citation.last)
        if split_lines(ran.out)[lines] == new[lines]:
            return settled
        problem = f"is a link to lines at `{ref[:12]}` that the working tree has no longer there"
        return msgspec.structs.replace(citation, problem=problem)

    def _is_pin(self, name: str, ref: str) -> bool | None:
        """Tell whether a tag or one's own branch is the pin; None if it isn't known or moved."""
        if (name, ref) not in self._refs:
            pin = self._pins[name].commit
            git = self._evidence.library.clone(self._evidence.source(name)) if pin else None
            answer = None
            # A branch of someone else's repository shows other lines tomorrow.
            branches = ("heads", "remotes/origin") if name == self._own else ()
            for folder in ("tags", *branches) if git else ():
                full = ref if ref.startswith("refs/") else f"refs/{folder}/{ref}"
                ran = git.run("rev-parse", "--verify", f"{full}^{{commit}}")  # type: ignore[union-attr]
                commit = ran.out.decode("ascii", "replace").strip()
                if ran.status == 0 and (folder == "tags" or commit == pin):
                    answer = commit == pin
                    break
            if answer is None and pin and self._lab.sources[name].release == ref:
                answer = True
            self._refs[name, ref] = answer
        return self._refs[name, ref]

    def _find_ends(self, citation: Citation) -> list[tuple[str, str]]:
        """Return source and path of every file whose path ends in a citation's path."""
        candidates = self._list_candidates(citation)
        ends = [(file.source, path) for file in candidates for path in file.ends]
        return ends or (
            self._find_in_lock(citation) if candidates and not _is_absent(candidates) else []
        )

    def _list_candidates(self, citation: Citation) -> list[CitedFile]:
        """Return the files of a path that no source is known to have; else nothing."""
        key = citation.source, citation.path
        if citation.repository or citation.relative:
            return []
        if key not in self._candidates:
            resolved = self._resolver.resolve(citation)
            is_resolved = resolved.file or resolved.rivals or resolved.sole
            self._candidates[key] = [] if is_resolved else resolved.candidates
        return self._candidates[key]

    def _find_in_lock(self, citation: Citation) -> list[tuple[str, str]]:
        """Return the files whose path ends so and for which the lock records the cited lines.

        This is used only if no tree is available; the tree was asked when the lock was written.
        """
        return [
            (name, path)
            for name, locked in self._lock.sources.items()
            if name in self._pins and locked.commit == self._pins[name].commit
            for path in locked.files
            if path.endswith(f"/{citation.path}") and citation.source in ("", name)
            if self._lock.citation(name, msgspec.structs.replace(citation, path=path).key_in(name))
        ]

    def _complete_path(self, citation: Citation, view: ParsedPage) -> Citation:
        """Give a citation the whole path if its path is only the end of one in its sources."""
        ends = self._choose_end(self._find_ends(citation), citation, view)
        if citation.problem or not ends:
            return citation
        if len(ends) == 1:
            return msgspec.structs.replace(citation, path=ends[0][1])
        listed = ", ".join([f"`{path}`" for _, path in ends[:3]] + ["…"] * (len(ends) > 3))
        problem = f"gives the end of {len(ends)} paths ({listed}); write the whole path"
        return msgspec.structs.replace(citation, problem=problem)

    def _find_lines(self, citation: Citation) -> Citation:
        """Look up the lines of a symbol, in a file whose text was read."""
        file = self._resolver.resolve(citation).file
        lost = msgspec.structs.replace(citation, by_symbol=True)
        is_known = self._own and self._pins[self._own].commit == WORKTREE
        if is_known and not self._lock.citation(self._own, lost.key_in(self._own)):
            is_known = False
        if file is None:
            return lost if is_known else citation
        if file.outline is None or not file.outline.structured:
            problem = (
                "names a symbol, but the file's text is not available or has no structure rule"
            )
            return msgspec.structs.replace(citation, problem=problem)
        name = citation.symbol.replace("::", ".")
        matches = find_symbols(file.outline, name)
        matches = [each for each in matches if each.name == name] or matches
        if not matches and is_known:
            return lost  # the lock says what to look for in other files
        if len(matches) != 1:
            what = "no symbol" if not matches else f"{len(matches)} symbols"
            return msgspec.structs.replace(citation, problem=f"names {what} of `{citation.path}`")
        return msgspec.structs.replace(
            citation,
            first=matches[0].top,
            last=matches[0].last,
            by_symbol=self._pins[file.source].commit == WORKTREE,
        )


def files_of(
    links: Iterable[FileLink], pins: dict[str, Pin], resolver: Resolver
) -> list[tuple[str, str]]:
    """Return source and path of each file link that leads to a source at its pin."""
    return [
        (name, link.path)
        for link in links
        for name in resolver.of_repository(link)
        if pins[name].commit.startswith(link.commit)
    ]


def _is_absent(candidates: list[CitedFile]) -> bool:
    """Tell whether a tree was asked and lacks the path."""
    return any(file.state is State.ABSENT for file in candidates)


def _list_citations(views: list[ParsedPage]) -> Iterable[Citation]:
    return (citation for view in views if view.note for citation in view.note.citations)


def _map_citations(view: ParsedPage, change: Change) -> ParsedPage:
    """Return a page with each citation replaced by `change`; if none changes, the same page."""
    note = view.note
    if note is None:
        return view
    every = [citation for block in note.blocks for citation in block.citations]
    if list(map(change, every)) == every:
        return view

    def cells(before: list[ProseBlock]) -> list[ProseBlock]:
        return [
            msgspec.structs.replace(
                cell, citations=[new for each in cell.citations if (new := change(each))]
            )
            for cell in before
        ]

    changed: Note = msgspec.structs.replace(
        note, choices=cells(note.choices), outside_choices=cells(note.outside_choices)
    )
    return msgspec.structs.replace(view, note=changed)
