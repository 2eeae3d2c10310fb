"""What is said to a reader, in both languages; what the bench itself says is in words.toml."""

from functools import cache
from pathlib import Path

import msgspec


class Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same said in both languages."""

    en: str
    es: str

    def of(self, language: str) -> str:
        """Return them in "en" or "es"."""
        return self.es if language == "es" else self.en


def texts(page: str) -> dict[str, Words]:
    """Return all that words.toml has on a page, by name."""
    return _file()[page]


def words(name: str) -> Words:
    """Return what words.toml has under "page.name"."""
    page, _, entry = name.partition(".")
    return _file()[page][entry]


def say(name: str, language: str) -> str:
    """Return what words.toml has under "page.name", in "en" or "es"."""
    return words(name).of(language)


@cache
def _file() -> dict[str, dict[str, Words]]:
    file = Path(__file__).parents[1] / "words.toml"
    return msgspec.toml.decode(file.read_bytes(), type=dict[str, dict[str, Words]])
