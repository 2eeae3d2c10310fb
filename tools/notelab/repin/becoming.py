"""What became of one citation: same, moved, reformatted, edited or gone.

Only what can't mean anything else may be written: git's histogram hunks leave the lines alone, they
stand in the same innermost symbol, and the same conditions enclose them.
"""

from collections.abc import Callable

from notelab.cited.outline import Symbol
from notelab.repin.candidates import Scored, best, ranked
from notelab.repin.carried import Carried, Kind, Place
from notelab.repin.enclosing import essence
from notelab.repin.hunks import Map
from notelab.repin.version import Cited, Version, own_name

# Of the old words, by weight: with so many the symbol itself has what is meant; elsewhere in its
# class or file so many must stand for a proposal.
_ENOUGH, _SURE = 0.6, 0.75
Elsewhere = Callable[[Cited], list[Version]]


def become(cited: Cited, new: Version | None, through: Map | None, elsewhere: Elsewhere) -> Carried:
    """Return what became of a citation.

    Args:
        cited: where it stands.
        new: the file at the same path of the new commit, None where there is none.
        through: the hunks between the two.
        elsewhere: finds the other files that hold a symbol; asked only if it left this one.
    """
    kind: Kind
    old, name = Place(cited.old.path, cited.first, cited.last), cited.symbol
    if new is not None and through is not None:
        start = through.kept(cited.first, cited.last)
        end = start + cited.last - cited.first if start else 0
        if start and (cited.old.blob == new.blob or cited.stands_in(new, start, end)):
            kind = "same" if start == cited.first else "moved"
            return Carried(old, kind, Place(new.path, start, end), symbol=name)
    found = _candidates(cited, new, through, elsewhere)
    kind = "edited" if found else "gone"
    if found and new and _says_the_same(cited, new, found[0].place):
        kind = "reformatted"
    return Carried(old, kind, None, [one.place for one in found], symbol=name)


def _says_the_same(cited: Cited, new: Version, top: Place) -> bool:
    there = top.path == new.path and new.path.endswith((".py", ".pyi"))
    if not there or not cited.stands_in(new, top.start, top.end):
        return False
    before = cited.old.lines[cited.first - 1 : cited.last]
    return essence(before) == essence(new.lines[top.start - 1 : top.end])


def _candidates(
    cited: Cited, new: Version | None, through: Map | None, elsewhere: Elsewhere
) -> list[Scored]:
    name = cited.symbol
    if new is None:
        return best(_away(cited, elsewhere))
    here = new.named(name) if name else []
    if here or not name:
        found = best([*_whole(cited, new, here), *ranked(cited, new, here, through)])
        if name and not (found and found[0].left >= _ENOUGH):
            wider = ranked(cited, new, _around(new, name), through)
            found = best([*found, *(one for one in wider if one.left >= _SURE)])
        return found
    found = [*_away(cited, elsewhere), *_whole(cited, new, _renamed(cited, new))]
    return best([*found, *ranked(cited, new, _around(new, name), through)])


def _renamed(cited: Cited, new: Version) -> list[Symbol]:
    """Return the one symbol that has its own name, and stands in another one since."""
    own = own_name(cited.symbol)
    found = [one for one in new.called(own) if not cited.old.named(one.name)]
    return found if len(found) == 1 and not own.endswith("__") else []


def _whole(cited: Cited, new: Version, here: list[Symbol]) -> list[Scored]:
    """Return the symbols of that name where a whole one is cited: whatever became of its text."""
    mine = cited.inner
    if mine is None or cited.last != mine.last:
        return []
    for start in ("top", "line", "first"):
        if cited.first == getattr(mine, start):
            return [Scored(1, 1, Place(new.path, getattr(one, start), one.last)) for one in here]
    return []


def _around(new: Version, name: str) -> list[Symbol]:
    """Return what still encloses the place of a symbol that left: its class, else the module."""
    while "." in name:
        name = name.rpartition(".")[0]
        if found := new.named(name):
            return found
    return []


def _away(cited: Cited, elsewhere: Elsewhere) -> list[Scored]:
    found: list[Scored] = []
    for other in elsewhere(cited):
        symbols = other.named(cited.symbol)
        alike = ranked(cited, other, symbols or other.called(own_name(cited.symbol)), None)
        found += _whole(cited, other, symbols)
        found += [one for one in alike if symbols or one.left >= _SURE]
    return found
