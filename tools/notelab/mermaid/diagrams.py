"""The diagrams of a run: each text parsed once and for all, and all of them in bounded time."""

from collections.abc import Callable, Iterable
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec

from notelab.cache import CacheFile, cache_key, get_decoded
from notelab.mermaid import fingerprint
from notelab.mermaid.parsed import EngineMissing, Parsed

if TYPE_CHECKING:
    from notelab.mermaid.engine_thread import EngineThread

# What a run may spend on diagrams that it parses for the first time: so many seconds of a
# processor, a little more for each diagram, and altogether a minute, or where there are very many
# three times what one costs (a fiftieth of a second, on some machines half as much again).
_AT_ONCE, _EACH, _ALTOGETHER, _OF_MANY = 4.0, 0.25, 60.0, 0.06
WORTH_IT = 60  # new diagrams; processes start in half a second, in which one parses thirty
# Told what is counted, how many are done and how many there are.
Progress = Callable[[str, int, int], None]


class Diagrams:
    """Parses diagrams with mermaid itself."""

    def __init__(self, cache: CacheFile) -> None:
        """Start no engine yet: most checks find every diagram in the content cache."""
        self._cache = cache
        self._engine: EngineThread | None = None
        self._spent = 0.0
        self._known: dict[str, Parsed] = {}
        self.missing = ""

    def ahead(self, texts: Iterable[str], progress: Progress) -> None:
        """Parse what is asked for later, in several processes where there is enough of it."""
        new = [text for text in dict.fromkeys(texts) if self._remembered(text) is None]
        if len(new) < WORTH_IT:
            return
        from notelab.mermaid import many

        with closing(many.parse(new)) as answers:
            for done, (text, parsed, seconds) in enumerate(answers, start=1):
                self._spent += seconds
                self._remember(text, parsed)
                progress("diagrams parsed", done, len(new))
                if self._is_spent():
                    break

    def parse(self, text: str) -> Parsed | None:
        """Parse one diagram; None where no script engine can be had (`missing` says why)."""
        kept = self._remembered(text)
        if kept is not None:
            return kept
        if not self.missing and self._is_spent():
            self.missing = f"this run has spent {self._spent:.0f} s on diagrams; mend the slow ones"
        if self.missing:
            return None
        from notelab.mermaid.engine_thread import EngineThread

        try:
            self._engine = self._engine or EngineThread()
            parsed, seconds = self._engine.parse(text)
            self._spent += seconds
        except EngineMissing as fault:
            self.missing = f"{fault}" + (f"; {fault.hint}" if fault.hint else "")
            return None
        self._remember(text, parsed)
        return parsed

    def _is_spent(self) -> bool:
        count = len(self._known)
        return self._spent > min(_AT_ONCE + _EACH * count, max(_ALTOGETHER, _OF_MANY * count))

    def _remembered(self, text: str) -> Parsed | None:
        if text not in self._known:
            found = get_decoded(self._cache, "diagram", cache_key(fingerprint(), text), Parsed)
            self._known |= {text: found} if found else {}
        return self._known.get(text)

    def _remember(self, text: str, parsed: Parsed) -> None:
        self._known[text] = parsed
        if parsed.settled:
            key = cache_key(fingerprint(), text)
            self._cache.put("diagram", key, msgspec.msgpack.encode(parsed))
