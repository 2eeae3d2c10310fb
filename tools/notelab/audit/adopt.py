"""Makes a lab of notes that were written without the checker: sources, pins, lock and baseline."""

import json
import os
import re
from collections import Counter
from pathlib import Path

import msgspec

from notelab.audit import baseline
from notelab.audit.mentions import find_mentions
from notelab.audit.reading_date import Reached, Reading, make_reading, rank_commits
from notelab.audit.repository import Repository
from notelab.book.opening import open_session
from notelab.book.relock import lock_path, relock
from notelab.book.workbook import CheckSession, Workbook, open_views
from notelab.check import check_book
from notelab.commands import pinning
from notelab.errors import NotelabError, display_path
from notelab.files import write_files
from notelab.lab import lock as lock_file
from notelab.lab import pages, pins
from notelab.lab.lab import LAB_FILE, Lab, load, repository_root
from notelab.lab.lab_file import LabFile
from notelab.lab.lock import LOCK_FILE, Lock
from notelab.page import reading
from notelab.page.candidates import Candidate, find_candidates
from notelab.page.citation import Span
from notelab.report.outcome import Report
from notelab.rules.constraints import split_quotation
from notelab.sources.answers import WORKTREE
from notelab.sources.git.git_command import GitCommand, find_git_dir, open_clone
from notelab.sources.git.url import check_url, is_commit, normalize_repository

_NO_ADDRESS = "https://example.invalid/"  # of a clone that doesn't say where it is from
_ADDRESS = re.compile(r"https?://[^/]+/[^\s#?]+?(?=/(?:-/)?(?:blob|blame|tree|src)/)")


class _Note(msgspec.Struct):
    path: Path
    lines: list[str]
    candidates: list[Candidate]
    quotations: dict[Span, str]  # by the citation that each follows


class _Source(msgspec.Struct):
    """A source to be written: where it is, and the commit that was read."""

    name: str
    where: str  # its row in lab.toml
    commit: str = ""  # '' for the working tree
    remarks: list[str] = []


def adopt(
    files: list[Path], folder: Path | None, typed: tuple[str, ...], mirrors: tuple[str, ...]
) -> list[str]:
    """Write a lab about the notes in `files`; return what was done.

    Args:
        files: the notes.
        folder: the lab's folder; by default the notes' common folder.
        typed: the sources as typed, `NAME=URL`.
        mirrors: clones on disk as typed, `NAME=DIR`.

    Raises:
        NotelabError: there is a lab already, nothing is cited, or no commit can be found.
    """
    notes = [_read(path) for path in dict.fromkeys(path.resolve() for path in files)]
    common = Path(os.path.commonpath([note.path.parent for note in notes]))
    folder = folder.resolve() if folder else common
    root = repository_root(common)
    if (folder / LAB_FILE).exists():
        raise NotelabError(
            f"{display_path(folder / LAB_FILE)} exists already",
            hint="add the notes to its `pages`, or give another folder with --lab",
        )
    if not all(note.path.is_relative_to(root) for note in notes):
        raise NotelabError("the notes are in different repositories; adopt those of one at a time")
    urls = dict(_split(text, "--source", "NAME=URL") for text in typed)
    clones = {name: Path(at) for name, at in (_split(t, "--mirror", "NAME=DIR") for t in mirrors)}
    sources = _find_sources(notes, root, urls, clones)
    text = _format_lab(folder, notes, sources)
    written = {folder / LAB_FILE: text.encode()}
    for source in sources:
        if source.commit:
            written[folder / f"{source.name}-sha.txt"] = pins.format_pin(source.commit).encode()
    for path in (*written, folder / LOCK_FILE, folder / baseline.BASELINE):
        if path.exists():
            raise NotelabError(
                f"{display_path(path)} exists already",
                hint="move it away, or give another folder with --lab",
            )
    lab = load(folder, msgspec.toml.decode(text, type=LabFile))
    names = [source.name for source in sources]
    book, report, lines = _check(lab, sources, open_session(mirrors, sources=names))
    counts = baseline.count(folder, report.findings)
    contents = {lock_path(book): lock_file.dump(book.lock or Lock()).encode()}
    contents |= {folder / baseline.BASELINE: baseline.dump(counts)} if counts else {}
    contents |= dict(reversed(written.items()))  # lab.toml is the last: with it there is a lab
    folder.mkdir(parents=True, exist_ok=True)
    write_files(contents)
    proved = sum(note.proved for note in report.notes)
    total = sum(note.citations for note in report.notes)
    remarks = [remark for source in sources for remark in source.remarks]
    written_lines = [f"wrote {display_path(path)}" for path in written]
    return [
        *remarks, *written_lines, *lines,
        f"{proved} of {total} citations proved; {counts.total()} findings of today are in "
        f"{display_path(folder / baseline.BASELINE)}" if counts else
        f"{proved} of {total} citations proved, no finding",
    ]  # fmt: skip


def _check(
    lab: Lab, sources: list[_Source], session: CheckSession
) -> tuple[Workbook, Report, list[str]]:
    """Lock and check a lab that is not written yet; return it, the report and what was locked."""
    pinned = {
        source.name: pins.Pin(
            source.name,
            lab.folder / lab.sources[source.name].pin,
            source.commit or WORKTREE,
        )
        for source in sources
    }
    cache = session.cache.file_for(lab.root)
    views = [pages.parse(page, cache) for page in pages.list_pages(lab)]
    book = open_views(lab, views, pinned, None, session)
    relocked = relock(book)
    lines = pinning.describe_lock(book, relocked)
    book = open_views(lab, views, pinned, relocked.lock, session)
    try:
        return book, check_book(book, session, all_pages=True), lines
    finally:
        session.cache.save()


def _read(path: Path) -> _Note:
    text = pages.read(path)
    if text.problem:
        raise NotelabError(f"{display_path(path)} {text.problem}")
    note = reading.read(text.text)
    quotations = {each.citations[-1]: each.text for each in note.quotations if each.citations}
    return _Note(path, text.text.split("\n"), find_candidates(text.text, note), quotations)


def _split(typed: str, option: str, form: str) -> tuple[str, str]:
    name, _, value = typed.partition("=")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,39}", name) or not value:
        raise NotelabError(f"{option} {typed}: expected {form}")
    return name, value


def _find_sources(
    notes: list[_Note], root: Path, urls: dict[str, str], clones: dict[str, Path]
) -> list[_Source]:
    """Return the sources of the notes: those of permalinks, then that of plain citations."""
    refs: dict[str, Counter[str]] = {}
    addresses: dict[str, str] = {}
    plain: list[tuple[_Note, Candidate]] = []
    for note in notes:
        for candidate in note.candidates:
            citation = candidate.citation
            if citation.repository:
                refs.setdefault(citation.repository, Counter())[citation.commit] += 1
                if match := _ADDRESS.match(citation.text):
                    addresses.setdefault(citation.repository, match[0])
            elif not citation.problem and citation.form != "maybe":
                plain.append((note, candidate))
    names = {normalize_repository(url): name for name, url in urls.items()}
    sources: list[_Source] = []
    for repository, commits in refs.items():
        url = next((url for url in urls.values() if normalize_repository(url) == repository), "")
        url = url or addresses.get(repository, f"https://{repository}")
        name = names.get(repository) or _name_of(repository, [s.name for s in sources])
        sources.append(_pin_by_links(name, url, commits, clones))
    date = _date_of(notes[-1].path, root)
    text = "\n".join(line for note in notes for line in note.lines)
    named = {source.name for source in sources}
    for name in dict.fromkeys([*urls, *clones]):
        if name in named:
            continue
        url = urls.get(name) or _origin(name, clones[name])
        source = _pin_by_names(name, url, plain, clones, date, text=text)
        if url.startswith(_NO_ADDRESS):
            remark = f"  {name}'s clone has no remote `origin`; in lab.toml, replace {url}"
            source.remarks.append(remark)
        sources.append(source)
    if plain and not sources:
        sources.append(_own_source(plain, root))
    if not sources:
        raise NotelabError("the notes cite no lines of any file", hint="nothing was written")
    return sources


def _pin_by_links(name: str, url: str, commits: Counter[str], clones: dict[str, Path]) -> _Source:
    """Return a source at the commit that most permalinks have; tags need a clone."""
    check_url(url)
    git = open_clone(clones[name]) if name in clones else None
    whole = Counter({ref: n for ref, n in commits.items() if len(ref) == 40 and is_commit(ref)})
    ref, count = (commits if git or not whole else whole).most_common(1)[0]
    commit = ref
    if git:
        commit = git.run("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}").text
    if len(commit) != 40 or not is_commit(commit):
        raise NotelabError(
            f"{name}: {ref[:80]} is no whole commit, and no clone says which one it is",
            hint=f"give a clone that has it: --mirror {name}=DIR",
        )
    release = _format_release("" if is_commit(ref) else ref)
    remark = f"{name}: {count} of {commits.total()} links lead to {ref[:40]}"
    return _Source(name, f"url = {json.dumps(url)}{release}", commit, [remark])


def _pin_by_names(
    name: str,
    url: str,
    plain: list[tuple[_Note, Candidate]],
    clones: dict[str, Path],
    date: str,
    *,
    text: str,
) -> _Source:
    """Return a source at the commit at which most citations fit; `text` may name one of several."""
    check_url(url)
    git = open_clone(clones[name]) if name in clones else None
    if git is None and name in clones:
        raise NotelabError(f"{display_path(clones[name])} is no clone of a repository")
    if git is None:
        raise NotelabError(
            f"{name}: nothing says which commit was read, and there is no clone to find it in",
            hint=f"give a clone with its history and tags: --mirror {name}=DIR",
        )
    repository = Repository(git, "HEAD")
    readings = _list_readings(repository, plain)
    ranked = rank_commits(repository, readings, date)
    best = ranked[0] if ranked else None
    if best is None or 3 * best.fitting < max(len(readings), 1):
        raise NotelabError(
            f"{name}: at no commit do the cited lines have the names next to them",
            hint="is it the right repository? Else write the pin yourself: `shardbook new`",
        )
    alike = [each for each in ranked if each.score == best.score]
    best = next((each for each in alike if _find_name(each, text)), best)
    alike.remove(best)
    named = _find_name(best, text)
    tag = named if named in best.tags else next(iter(best.tags), "")
    runner_up = next((each for each in ranked if each.score < best.score), None)
    remark = (
        f"{name}: the notes read {tag or best}: {best.fitting} of {len(readings)} citations fit"
    )
    if runner_up and runner_up.fitting == best.fitting:
        remark += f", {best.exact} of them in their very lines; the next best, {runner_up}: "
        remark += f"{runner_up.exact} in theirs"
    elif runner_up:
        remark += f"; the next best, {runner_up}: {runner_up.fitting}"
    remarks = [remark]
    if alike:
        why = "the notes name this one" if named else "the newest is taken"
        remarks.append(f"  {len(alike)} others fit alike ({alike[0]}, …); {why}")
    release = _format_release(tag)
    return _Source(name, f"url = {json.dumps(url)}{release}", best.commit, remarks)


def _find_name(reached: Reached, text: str) -> str:
    """Return the tag or the digits by which notes name a commit, or ''."""
    for tag in reached.tags:
        version = re.search(r"(?<![\d.])\d+(?:\.\d+)+.*", tag)
        name = rf"{re.escape(tag)}|v?{re.escape(version[0] if version else tag)}"
        if re.search(rf"(?<![\w./-])(?:{name})(?![\w/-]|\.\d)", text):
            return tag
    return reached.commit[:7] if reached.commit[:7] in text else ""


def _format_release(tag: str) -> str:
    return f'\nrelease = "{tag}"' if re.fullmatch(r"[\w.+-]+", tag) else ""


def _list_readings(repository: Repository, plain: list[tuple[_Note, Candidate]]) -> list[Reading]:
    """Return the plain citations that can be dated; an end of a path is completed."""
    readings = []
    blobs = repository.blobs(repository.commit)
    for note, candidate in plain:
        citation = candidate.citation
        path = citation.path
        paths = [path]
        if path not in blobs:
            named = repository.by_name.get(path.rpartition("/")[2], [])
            ends = [each for each in named if each.endswith(f"/{path}")]
            paths = ends or paths
        mentions = find_mentions(candidate, note.lines)
        quoted = split_quotation(note.quotations.get(citation.span, ""))
        found = make_reading(paths, citation.first, citation.last, mentions, quoted)
        if found and 0 < found.first <= found.last:
            readings.append(found)
    return readings


def _own_source(plain: list[tuple[_Note, Candidate]], root: Path) -> _Source:
    """Return the notes' own repository as a source, if it has the files that they cite."""
    git_dir = find_git_dir(root)
    names = {path.rpartition("/")[2] for path in _own_paths(git_dir)}
    own_count = sum(c.citation.path.rpartition("/")[2] in names for _, c in plain)
    if own_count * 2 < len(plain):
        raise NotelabError(
            f"{len(plain) - own_count} of {len(plain)} cited files are not in this repository",
            hint="give the other one: --source NAME=URL --mirror NAME=DIR",
        )
    remark = f"own: {own_count} of {len(plain)} citations are of this repository's files"
    return _Source("own", 'path = "."', "", [remark])


def _own_paths(git_dir: Path | None) -> list[str]:
    if git_dir is None:
        return []
    return [*Repository(GitCommand(git_dir), "HEAD").blobs("HEAD")]


def _origin(name: str, clone: Path) -> str:
    git = open_clone(clone)
    url = git.run("remote", "get-url", "origin").text if git else ""
    return url or f"{_NO_ADDRESS}{name}"


def _date_of(path: Path, root: Path) -> str:
    """Return the date of a note's last commit, or '' if it has none."""
    git_dir = find_git_dir(root)
    name = path.relative_to(root).as_posix()
    ran = GitCommand(git_dir).run("log", "-1", "--format=%cI", "--", name) if git_dir else None
    return ran.text if ran else ""


def _name_of(repository: str, taken: list[str]) -> str:
    name = re.sub(r"[^a-z0-9_-]+", "-", repository.rpartition("/")[2]).lstrip("-_0123456789")[:30]
    name = name or "source"
    return name if name not in taken else f"{name}-{len(taken) + 1}"


def _format_lab(folder: Path, notes: list[_Note], sources: list[_Source]) -> str:
    """Return the lab file; each note is one of its pages."""
    names = [Path(os.path.relpath(note.path, folder)).as_posix() for note in notes]
    globs = [re.sub(r"([*?[])", r"[\1]", name) for name in names]
    rows = "".join(f"    {json.dumps(glob, ensure_ascii=False)},\n" for glob in globs)
    text = "# Written by `shardbook adopt`. The fields: docs/reference/lab-file.md\n\n"
    text += f'[lab]\ntitle = {json.dumps(folder.name, ensure_ascii=False)}\nlanguages = ["en"]\n'
    text += f"quotes = true\npages = [\n{rows}]\n"
    for source in sources:
        pin = f"{source.name}-sha.txt" if source.commit else pins.HEAD
        text += f"\n[sources.{source.name}]\n{source.where}\npin = {json.dumps(pin)}\n"
    return text
