"""A range fits if it stays in one symbol and begins and ends with statements."""

import textwrap

import pytest

from notelab.cited import nearest_range, outline

SOURCE = textwrap.dedent(
    '''\
    """Module."""

    import os

    # Why the limit is what it is,
    # in two lines.
    LIMIT = 3


    @decorated
    @again(
        1,
    )
    def first(alpha, beta):
        """Say.

        More.
        """
        # why gamma
        gamma = alpha + \\
            beta
        if gamma:
            delta = [
                gamma,
            ]
        else:
            delta = None

        return delta


    def second():
        return LIMIT


    class Holder:
        """Hold."""

        kind = "holder"

        def get(self):
            def inner():
                return self.kind

            return inner

        async def put(self): self.kind = 1; return None
    '''
)
FILE = outline.of_file("a.py", SOURCE.encode())


def row(text: str) -> int:
    return next(n for n, line in enumerate(SOURCE.split("\n"), 1) if text in line)


def test_the_outline_names_symbols_with_decorators_and_comments() -> None:
    first = next(symbol for symbol in FILE.symbols if symbol.name == "first")
    assert (first.top, first.line, first.last) == (
        row("@decorated"),
        row("def first"),
        row("return delta"),
    )
    assert [symbol.name for symbol in FILE.symbols] == [
        "first", "second", "Holder", "Holder.get", "Holder.get.inner", "Holder.put",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("@decorated", "return delta"), ("def first", "return delta"),
        ("# Why the limit", "LIMIT = 3"), ("LIMIT = 3", "LIMIT = 3"), ("# why gamma", "    beta"),
        ("if gamma", "delta = None"), ("class Holder", "async def put"),
        ("class Holder", 'kind = "holder"'), ("def inner", "return inner"),
        ("async def put", "async def put"), ("LIMIT = 3", "return delta"),
        ("def first", "return LIMIT"), ('kind = "holder"', "async def put"),
    ],
)  # fmt: skip
def test_a_range_of_whole_statements_in_one_symbol_fits(start: str, end: str) -> None:
    first, last = row(start), max(n for n, line in enumerate(SOURCE.split("\n"), 1) if end in line)
    assert nearest_range.straddles(FILE, first, last) is None
    assert nearest_range.starts_well(FILE, first)
    assert nearest_range.ends_well(FILE, last)


@pytest.mark.parametrize(
    "start", ["# in two lines", "@again", "    1,", "More.", "    beta", "else:", "        gamma,"]
)
def test_a_range_may_not_begin_inside_a_statement_or_comment(start: str) -> None:
    assert not nearest_range.starts_well(FILE, row(start))


@pytest.mark.parametrize("end", ["# why gamma", "else:", "gamma = alpha", "More.", "def first"])
def test_a_range_may_not_end_inside_a_statement_or_on_a_comment(end: str) -> None:
    assert not nearest_range.ends_well(FILE, row(end))


@pytest.mark.parametrize(
    ("start", "end", "crossed"),
    [
        ("return delta", "return LIMIT", "first"),
        ("class Holder", "def inner", "Holder.get"),
        ('kind = "holder"', "def inner", "Holder.get"),
        ("return inner", "async def put", "Holder.get"),
    ],
)
def test_a_range_may_not_cross_into_another_symbol(start: str, end: str, crossed: str) -> None:
    symbol = nearest_range.straddles(FILE, row(start), row(end))
    assert symbol is not None
    assert symbol.name == crossed


def test_the_nearest_range_that_fits_holds_an_anchor() -> None:
    off = row("return delta") + 1
    assert nearest_range.nearest(FILE, off, off, 40, {"delta"}) == (off - 1, off - 1)
    assert nearest_range.nearest(FILE, off, off, 40, {"nowhere"}) is None


STRINGS = textwrap.dedent(
    '''\
    def shown(a):
        text = """one
        # of the string
        """ + f"""{
            a
        }
        # of the string too
        """
        return (
            "a"
            f"{a}"
            # and again
        )
    '''
)


def test_a_line_of_a_string_is_no_comment() -> None:
    groups = outline.of_file("a.py", STRINGS.encode()).groups
    comments = [row for row, line in enumerate(STRINGS.splitlines(), 1) if "#" in line]
    assert [row for row in comments if [(row, row)] in groups] == comments[2:]


def test_keywords_and_single_letters_anchor_nothing() -> None:
    names = FILE.names_between(1, FILE.lines)
    assert {"alpha", "beta", "LIMIT", "again"} <= names
    assert not names & {"def", "self", "return", "None"}


def test_names_in_strings_and_comments_anchor_and_an_option_is_one_name() -> None:
    data = b'set("MASTER_ADDR", f"{shown}")  # commented\nadd("--tensor-model-parallel-size")\n'
    names = outline.of_file("a.py", data).names_between(1, 2)
    assert names == {
        "set", "MASTER_ADDR", "shown", "commented", "add", "tensor_model_parallel_size",
    }  # fmt: skip


def test_a_file_that_no_reader_can_parse_has_lines_and_names_and_no_structure() -> None:
    plain = outline.of_file("README.md", b"one thing\ntwo\n")
    assert (plain.lines, plain.structured) == (2, False)
    assert plain.names_between(1, 1) == {"one", "thing"}
    broken = outline.of_file("x.py", b"def broken(:\n")
    assert (broken.lines, broken.structured) == (1, False)
    assert broken.names_between(1, 1) == {"broken"}


def test_of_equally_rare_names_an_identifier_is_proposed_before_a_word() -> None:
    plain = outline.of_file("a.md", b"common word\n" * 15 + b"common, and telling a_name\n")
    weak = nearest_range.weakness(plain, 16, 16, {"common"})
    assert weak is not None and weak.better == ["a_name", "telling"]
