"""The diagrams of a run: each text is parsed once, and all of them in a limited time."""

from collections.abc import Callable, Iterable
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec

from notelab.cache import CacheFile, cache_key, get_decoded
from notelab.mermaid import fingerprint

if TYPE_CHECKING:
    from notelab.mermaid.engine import EngineThread
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


# The processor time that a run may spend on new diagrams: a base and a little more for each, up to
# a minute in total. If there are very many, it is three times what an average diagram costs (about
# a fiftieth of a second).
_BASE_SECONDS, _SECONDS_EACH, _MAX_SECONDS, _SECONDS_EACH_OF_MANY = 4.0, 0.25, 60.0, 0.06
# Processes start in half a second. One engine parses thirty diagrams in that time.
MIN_FOR_PROCESSES = 60
# Called with what is counted, how many are done, and how many there are.
Progress = Callable[[str, int, int], None]


class Diagrams:
    """Parses diagrams with mermaid itself, within the time limit of a run.

    `unavailable_reason` says why a diagram could not be parsed, or is ''.
    """

    def __init__(self, cache: CacheFile) -> None:
        """Prepare without starting an engine: most checks find every diagram in the cache."""
        self._cache = cache
        self._engine: EngineThread | None = None
        self._seconds_spent = 0.0
        self._parsed: dict[str, Parsed] = {}
        self.unavailable_reason = ""

    def prefetch(self, texts: Iterable[str], progress: Progress) -> None:
        """Parse diagrams that will be needed; in several processes if there are enough of them."""
        new = [text for text in dict.fromkeys(texts) if self._look_up(text) is None]
        if len(new) < MIN_FOR_PROCESSES:
            return
        from notelab.mermaid import parallel

        with closing(parallel.parse_all(new)) as answers:
            for done, (text, parsed, seconds) in enumerate(answers, start=1):
                self._seconds_spent += seconds
                self._store(text, parsed)
                progress("diagrams parsed", done, len(new))
                if self._is_over_budget():
                    break

    def parse(self, text: str) -> Parsed | None:
        """Parse one diagram; return None if no engine is available or the time limit is reached."""
        cached = self._look_up(text)
        if cached is not None:
            return cached
        if not self.unavailable_reason and self._is_over_budget():
            message = f"this run has spent {self._seconds_spent:.0f} s on diagrams"
            self.unavailable_reason = f"{message}; simplify the slow ones"
        if self.unavailable_reason:
            return None
        from notelab.mermaid.engine import EngineThread

        try:
            self._engine = self._engine or EngineThread()
            parsed, seconds = self._engine.parse(text)
            self._seconds_spent += seconds
        except EngineMissing as fault:
            self.unavailable_reason = f"{fault}" + (f"; {fault.hint}" if fault.hint else "")
            return None
        self._store(text, parsed)
        return parsed

    def _is_over_budget(self) -> bool:
        count = len(self._parsed)
        return self._seconds_spent > min(
            _BASE_SECONDS + _SECONDS_EACH * count, max(_MAX_SECONDS, _SECONDS_EACH_OF_MANY * count)
        )

    def _look_up(self, text: str) -> Parsed | None:
        if text not in self._parsed:
            cached = get_decoded(self._cache, "diagram", cache_key(fingerprint(), text), Parsed)
            self._parsed |= {text: cached} if cached else {}
        return self._parsed.get(text)

    def _store(self, text: str, parsed: Parsed) -> None:
        self._parsed[text] = parsed
        if parsed.settled:
            key = cache_key(fingerprint(), text)
            self._cache.put("diagram", key, msgspec.msgpack.encode(parsed))
