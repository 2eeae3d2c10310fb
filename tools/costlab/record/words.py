"""What is said to a reader, in both languages."""

from __future__ import annotations

import msgspec


class Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same said in both languages."""

    en: str
    es: str

    def of(self, language: str) -> str:
        """Return them in "en" or "es"."""
        return self.es if language == "es" else self.en
