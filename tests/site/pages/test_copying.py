"""The copy button: what a reader pastes into a terminal is what the page says to type."""

import pytest

from tests.site.reader import OpenReader

ALLOWED = ["clipboard-read", "clipboard-write"]


@pytest.mark.parametrize("language", ["", pytest.param("es/", marks=pytest.mark.ci)])
def test_a_copied_block_is_its_commands_and_output_has_no_button(
    open_reader: OpenReader, language: str
) -> None:
    copying = open_reader(permissions=ALLOWED)
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


@pytest.mark.ci
def test_a_long_command_is_read_whole_and_copied_as_one_line(open_reader: OpenReader) -> None:
    telephone = open_reader(viewport={"width": 390, "height": 844}, permissions=ALLOWED)
    page = telephone.read("labs/01-three-d/")
    count_overflowing = "all => all.filter(code => code.scrollWidth > code.clientWidth).length"
    commands = page.locator(".language-bash code")
    assert commands.count() > 3
    assert commands.evaluate_all(count_overflowing) == 0
    indent = "line => parseFloat(getComputedStyle(line).textIndent)"
    assert (
        commands.locator("> span").first.evaluate(indent) < 0
    )  # of what follows on its next lines
    block = page.locator(".language-bash").nth(1)
    block.hover()
    block.locator("button").click()
    copied = page.evaluate("navigator.clipboard.readText()").split("\n")
    assert [line.split()[0] for line in copied] == ["torchrun"] * 3
