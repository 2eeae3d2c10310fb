"""The copy button: what a reader pastes into a terminal is what the page says to type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.site.reader import Reader


@pytest.fixture
def copying(browser: Any, served: str) -> Iterator[Reader]:
    reader = Reader(browser, served, permissions=["clipboard-read", "clipboard-write"])
    yield reader
    reader.context.close()


@pytest.mark.parametrize("language", ["", pytest.param("es/", marks=pytest.mark.ci)])
def test_a_copied_block_is_its_commands_and_output_has_no_button(
    copying: Reader, language: str
) -> None:
    page = copying.read(f"{language}labs/00-ffn-by-hand/")
    copied = []
    for block in page.locator(".language-bash").all():
        block.hover()
        block.locator("button").click()
        copied.append(page.evaluate("navigator.clipboard.readText()"))
    assert copied == [
        "make bench-env\nsource .venv/bin/activate",
        "python experiments/35-ffn-by-hand/ffn.py",
    ]
    output = page.locator(".language-text button")
    assert output.count() >= 1
    assert not any(button.is_visible() for button in output.all())
    assert not copying.wrong
