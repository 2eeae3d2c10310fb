"""Parts of statements that a careful reader would cite fit; other parts don't."""

import textwrap

import pytest

from notelab.cited import nearest_range, outline

SOURCE = textwrap.dedent(
    '''\
    """Module.

    The equation of it is

        y = x A + b

    and no more.
    """

    import os
    from os import (
        path,
        sep,
    )


    # What the limit is for,
    # and why.
    #
    # What it is not for.
    LIMIT = 3


    @decorated
    @again(
        1,
    )
    def first(
        alpha,
        beta=2,
        *rest,
        gamma: int = 3,
    ) -> int:
        """Say.

        Args:
            alpha: what it is,
                at length.
            beta: another.
        """
        if (
            alpha
            and beta
        ):
            gamma = alpha
            gamma += 1
        elif beta:
            gamma = beta
        else:
            gamma = 0
            gamma -= 1
        for one in range(
            gamma,
        ):
            call(one)
        else:
            call(None)
        try:
            run(
                "--tensor-model-parallel-size",
                key=alpha,
                **rest,
            )
        except ValueError as fault:
            log(fault)
            raise
        except (
            TypeError,
            KeyError,
        ):
            pass
        else:
            done()
        finally:
            close()
        match gamma:
            case 0:
                none()
                more()
            case Point(
                x=1,
            ):
                some()
        table = {
            "alpha": alpha,
            "beta": {
                "deep": beta,
            },
            **rest,
        }
        return table[alpha](beta, [
            alpha,
            "ü", beta,
        ])


    class Holder:
        @property
        def size(self):
            return self._size

        @size.setter
        def size(self, value):
            self._size = value

        def other(self):
            return 1


    @overload
    def many(a: int) -> int: ...
    @overload
    def many(a: str) -> str: ...
    def many(a):
        return a


    def after():
        pass
    '''
)
FILE = outline.of_file("a.py", SOURCE.encode())
LINES = SOURCE.split("\n")


def row(text: str, start: int = 0) -> int:
    """The first row, from `start` on, whose text begins so."""
    return next(
        n for n, line in enumerate(LINES, 1) if n >= start and line.strip().startswith(text)
    )


def accepted(first: str, last: str) -> bool:
    begin = row(first)
    end = row(last, begin)
    return (
        nearest_range.is_whole(FILE, begin, end)
        and nearest_range.straddles(FILE, begin, end) is None
    )


@pytest.mark.parametrize(
    ("first", "last"),
    [
        pytest.param("def first(", ") -> int:", id="a signature over several lines"),
        pytest.param("@decorated", ") -> int:", id="decorators and signature"),
        pytest.param("@decorated", ")", id="both decorators"),
        pytest.param("@decorated", "@decorated", id="one decorator"),
        pytest.param("@again", "])", id="from the second decorator on"),
        pytest.param("beta=2", "beta=2", id="one parameter"),
        pytest.param("beta=2", "gamma: int", id="several parameters"),
        pytest.param("if (", "):", id="the header of an if"),
        pytest.param("for one in range(", "):", id="the header of a for"),
        pytest.param("else:", "gamma -= 1", id="else with its body"),
        pytest.param("else:", "gamma = 0", id="else with the first of its body"),
        pytest.param("except ValueError", "raise", id="except with its header"),
        pytest.param("except ValueError", "log(fault)", id="except and the first of its body"),
        pytest.param("except (", "):", id="the header of an except"),
        pytest.param("except ValueError", "pass", id="both handlers"),
        pytest.param("finally:", "close()", id="finally"),
        pytest.param("case 0:", "more()", id="a case"),
        pytest.param("case Point(", "some()", id="a case with a header of several lines"),
        pytest.param('"alpha": alpha', '"alpha": alpha', id="one entry of a dict"),
        pytest.param('"beta": {', "},", id="an entry of several lines"),
        pytest.param('"alpha": alpha', "**rest", id="all entries"),
        pytest.param("key=alpha", "key=alpha", id="an argument of a call"),
        pytest.param('"--tensor-model', "**rest", id="all arguments"),
        pytest.param("sep,", "sep,", id="one imported name"),
        pytest.param("# What the limit", "# and why", id="a paragraph of a comment"),
        pytest.param("# What the limit", "# What it is not", id="a whole comment block"),
        pytest.param("y = x A + b", "y = x A + b", id="a docstring's equation"),
        pytest.param("alpha: what it is", "alpha: what it is", id="an entry of a docstring"),
        pytest.param("@property", "self._size = value", id="a property with its setter"),
        pytest.param("@overload", "return a", id="a function with its overloads"),
    ],
)  # fmt: skip
def test_what_a_careful_reader_cites_is_accepted(first: str, last: str) -> None:
    assert accepted(first, last)


@pytest.mark.parametrize(
    ("first", "last"),
    [
        pytest.param("gamma: int", "gamma = alpha", id="from a parameter into the body"),
        pytest.param("@again", "1,", id="half a decorator"),
        pytest.param("and beta", "):", id="half a header"),
        pytest.param("gamma -= 1", "for one in range(", id="from a branch into a header"),
        pytest.param("else:", "call(one)", id="from one statement's else into the next"),
        pytest.param('"beta": {', '"deep": beta', id="half an entry"),
        pytest.param('"ü", beta', '"ü", beta', id="a line with two elements"),
        pytest.param("# and why", "# What it is not", id="from the midst of a paragraph"),
        pytest.param("and no more", "import os", id="from a docstring into the code"),
    ],
)  # fmt: skip
def test_what_no_reader_takes_for_a_unit_is_refused(first: str, last: str) -> None:
    assert not accepted(first, last)
