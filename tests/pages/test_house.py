"""The house's numbers count only code."""

from pathlib import Path

from pages.house import count_code_lines


def test_code_is_counted_without_docstrings_comments_and_blank_lines(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text(
        '"""Says.\n\nMore.\n"""\n\nimport os  # why\n\n\ndef one(\n    a: int,\n) -> str:\n'
        '    """Return."""\n    # why\n    text = """two\n\n    lines"""\n'
        "    return text + os.sep\n"
    )
    assert count_code_lines(file) == 8


def test_an_empty_file_has_no_code(tmp_path: Path) -> None:
    file = tmp_path / "none.py"
    file.write_text("")
    assert count_code_lines(file) == 0
