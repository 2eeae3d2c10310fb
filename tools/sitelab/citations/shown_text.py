"""Cited text as a card may show it: what can't be seen is written out, and what is long is cut."""

import unicodedata

LONGEST = 400  # characters of a line: twice what a wide screen shows
# A tab is only wide, and a line's end is no part of it.
_SHOWN_AS_IT_IS = "\t"
# Controls (escape, carriage return), formats (bidirectional, of no width), separators of lines and
# of paragraphs, and what is private: they would reorder, hide or fake what a reader sees.
_UNSEEN = ("Cc", "Cf", "Zl", "Zp", "Co", "Cs", "Cn")


def shown_text(text: str) -> str:
    """Return a line of text with each character that can't be seen written as its code point.

    >>> shown_text("a\\x1bb"), shown_text("if \\u202e x")
    ('a⟨U+001B⟩b', 'if ⟨U+202E⟩ x')
    """
    if text.isprintable():
        return text
    return "".join(map(_shown_character, text))


def _shown_character(character: str) -> str:
    hidden = unicodedata.category(character) in _UNSEEN and character not in _SHOWN_AS_IT_IS
    return f"⟨U+{ord(character):04X}⟩" if hidden else character


def shown_line(line: str) -> str:
    """Return a line as a card shows it, without its line's end and cut where it is long."""
    line = line.removesuffix("\r")
    if len(line) <= LONGEST:
        return shown_text(line)
    return f"{shown_text(line[:LONGEST])} … (+{len(line) - LONGEST:,})"
