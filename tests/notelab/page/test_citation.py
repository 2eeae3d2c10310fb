"""Which code spans are citations, and which of them are malformed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notelab.page.citation import Span, format_citation
from notelab.page.citation_syntax import looks_like_citation, parse

HERE = Span(1, 1, 1, 1)


def test_a_range_and_a_single_line_are_read() -> None:
    line_range = parse("megatron/core/x.py:L12-L20", HERE)
    assert (line_range.source, line_range.path) == ("", "megatron/core/x.py")
    assert (line_range.first, line_range.last) == (12, 20)
    single_line = parse("megatron/core/x.py:L7", HERE)
    assert (single_line.first, single_line.last, single_line.problem) == (7, 7, "")


@pytest.mark.parametrize("lines", ["12-15", "L12-15", "L12\u2013L15", "12 - 15", "L12C3-L15C9"])
def test_lines_may_be_written_in_other_ways(lines: str) -> None:
    for code in (f"a/b.py:{lines}", f"a/b.py#{lines}", f"a/b.py: {lines}"):
        citation = parse(code, HERE)
        lines_read = (citation.first, citation.last)
        assert (citation.path, lines_read, citation.problem) == ("a/b.py", (12, 15), "")


def test_a_source_may_be_named_before_the_path() -> None:
    citation = parse("megatron:README.md:L1-L2", HERE)
    assert (citation.source, citation.path, citation.problem) == ("megatron", "README.md", "")


@pytest.mark.parametrize(
    "code",
    [
        "a/b.py:L0", "a/b.py:L5-L0", "a/b.py:L012", "../b.py:L1", "a/../b.py:L1", "./b.py:L1",
        "/etc/passwd:L1", "a//b.py:L1", "C:/b.py:L1", "a\\b.py:L1", "a/b.py:L1-L1000000000",
        "a/b.py:L" + "9" * 5000,
    ],
)  # fmt: skip
def test_a_slip_of_the_pen_is_a_malformed_citation_not_plain_code(code: str) -> None:
    assert looks_like_citation(code)
    assert parse(code, HERE).problem


@pytest.mark.parametrize(
    "code", ["x[1:2]", "forward", "lambda x:1", "{'a':1}", "f(x):2", "https://a.b/c:443", "a b:L3"]
)
def test_plain_code_is_no_citation(code: str) -> None:
    assert not looks_like_citation(code)


@given(st.text(max_size=80))
def test_parsing_never_raises(code: str) -> None:
    if looks_like_citation(code):
        parse(code, HERE)


@given(
    st.from_regex(r"[a-z_]{1,8}(/[a-z_]{1,8}){0,3}\.py", fullmatch=True),
    st.integers(1, 10**6),
    st.integers(0, 100),
)
def test_what_is_written_is_read_back(path: str, first: int, more: int) -> None:
    text = format_citation(path, first, first + more)
    assert looks_like_citation(text)
    read = parse(text, HERE)
    assert (read.path, read.first, read.last, read.problem) == (path, first, first + more, "")
    assert read.key == text
