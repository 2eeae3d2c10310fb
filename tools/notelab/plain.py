"""Untrusted text, made safe to print."""


def plain(text: str) -> str:
    """Put a space for each control or invisible character, so that none reaches the terminal."""
    return text if text.isprintable() else "".join(ch if ch.isprintable() else " " for ch in text)
