"""A number and its unit are on one line; other text is not changed."""

from __future__ import annotations

import pytest

from sitelab.pages.line_breaks import make_numbers_nonbreaking
from tests.site.parsed import apply_change


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("so 15 %.", "so 15~%."),
        ("324 µs and 2.01 GB/s", "324~µs and 2.01~GB/s"),
        ("196 608 de vuelta; 2000 rondas", "196~608 de vuelta; 2000 rondas"),
        ("(60.7 ms – 65.4 ms)", "(60.7~ms~– 65.4~ms)"),
        ("(0.71× – 0.77×)", "(0.71×~– 0.77×)"),
        ('<a href="#a 1 s">29 %</a> (29 % – 29 %)', '<a href="#a 1 s">29~%</a> (29~%~– 29~%)'),
        ("4 ranks, 2 Bytes, 3 s-shaped, page 1 – a word", None),
        ("<code>sleep 5 s</code> <pre>1 KiB</pre>", None),
    ],
)
def test_a_number_is_not_torn_from_its_unit(text: str, whole: str | None) -> None:
    assert apply_change(text, make_numbers_nonbreaking) == (whole or text).replace(
        "~", "\N{NO-BREAK SPACE}"
    )
