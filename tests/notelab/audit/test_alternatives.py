"""Second and third proposals of `audit`: each rule finds its place in a small file."""

import pytest

from notelab.audit.alternatives import find_definition, find_whole, list_alternatives
from notelab.audit.mentions import Mention, find_definitions
from notelab.cited.outline import of_file
from notelab.lines import split_lines
from notelab.repin.changes import Place
from notelab.repin.version import Version

CODE = """\
LIMIT = 4


class Ring:
    def send(self, to):
        # A frame is built first.
        # build_frame is slow.
        frame = build_frame(
            to,
        )
        if frame is None:
            self.errors += 1
        else:
            self.errors += 1
        return frame


def build_frame(to):
    return to + LIMIT
"""


def version(code: str = CODE, path: str = "ring.py") -> Version:
    data = code.encode()
    return Version(path, "", split_lines(data), of_file(path, data))


def alternatives(start: int, end: int, *names: str, weight: float = 1.0) -> list[tuple[int, int]]:
    mentions = [Mention(name, name, weight) for name in names]
    places = list_alternatives(version(), Place("ring.py", start, end), mentions)
    return [(place.start, place.end) for place in dict.fromkeys(places)]


def test_after_a_definition_comes_the_nearest_use_in_code() -> None:
    found = alternatives(18, 18, "build_frame")
    assert found.index((8, 8)) == 1 and found[0] == (18, 18)
    assert (7, 7) not in found  # a comment


def test_the_definition_of_each_name_of_the_sentence_is_proposed() -> None:
    assert alternatives(11, 11, "errors", "build_frame", "LIMIT")[1:3] == [(18, 18), (1, 1)]
    # Names of other sentences are left out.
    assert (1, 1) not in alternatives(18, 18, "build_frame", "LIMIT", weight=0.2)


def test_a_range_begins_where_its_bracket_opens_or_after_its_comments() -> None:
    assert alternatives(9, 10)[0] == (8, 10)
    assert (8, 10) in alternatives(6, 10)


def test_a_line_of_a_definition_may_mean_the_whole() -> None:
    assert (18, 19) in alternatives(18, 18)
    assert {(5, 15), (5, 17)} <= {*alternatives(5, 6)}  # or all before the next definition


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((18, 19), (25, 28)),  # the whole function
        ((17, 19), (25, 28)),  # with the blank line above
        ((18, 20), (25, 28)),  # and one below
        ((19, 19), None),  # one line is meant as it is
        ((5, 15), (7, 22)),
        ((5, 12), (7, 22)),  # its end was left out, or added later
        ((5, 9), None),  # its beginning only
        ((8, 15), None),
    ],
)
def test_a_range_of_a_whole_symbol_is_proposed_as_the_whole(
    old: tuple[int, int], new: tuple[int, int] | None
) -> None:
    code = f"import os\n\n{CODE}".replace("        frame = ", "\n" * 5 + "        frame = ")
    code = code.replace("    return to +", "    to = int(to)\n    log(to)\n    return to +")
    mentions = [Mention(name, name, 1.0) for name in ("send", "build_frame")]
    place = find_whole(version(), version(code), Place("ring.py", *old), mentions)
    assert (place and (place.start, place.end)) == new


def test_the_comment_above_is_cited_if_it_was() -> None:
    go = "package ring\n\n// Send sends.\n// It waits.\nfunc Send() {\n\twait()\n}\n"
    new = go.replace("// It", "// Never fails.\n// It").replace("wait()", "wait()\n\tlog()")
    versions, mention = (version(go, "a.go"), version(new, "a.go")), [Mention("Send", "Send", 1)]
    for old, start in ((3, 3), (2, 3), (4, 3), (5, 6)):
        place = find_whole(*versions, Place("a.go", old, 7), mention)
        assert place == Place("a.go", start, 9)


def test_an_impl_is_no_second_definition() -> None:
    rust = version("pub struct Ring {\n    size: usize,\n}\n\nimpl Ring {\n}\n", "ring.rs")
    assert find_definition(rust, "Ring") == Place("ring.rs", 1, 1)


def test_a_label_below_a_tag_is_text_and_no_key() -> None:
    above = ("<p>", "  id='x'\n>", "<hr />", "{", "a: (b) =>", "a: (b) => b > 1,", "kind: Set<T>")
    pages = [version(f"{line}\n  size: <b>1</b>\n", "a.tsx") for line in above]
    assert [len(find_definitions(page, "size")) for page in pages] == [0, 0, 0, 1, 1, 1, 1]


def test_definitions_are_looked_up_once_for_each_name() -> None:
    """20,000 links to one of 200 `send` took two minutes."""
    ring = version("class A:\n    def send(self):\n        pass\n\n\n" * 200)
    before = find_definitions.cache_info().misses
    assert all(find_definition(ring, "send") is None for _ in range(100))
    assert find_definitions.cache_info().misses == before + 1
    assert len(find_definitions(ring, "send")) == 200
