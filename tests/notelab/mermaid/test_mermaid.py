"""Would a diagram draw, and what would a reader see? Asked of mermaid itself."""

import builtins
from collections import Counter
from typing import Any

import msgspec
import pytest

from notelab.mermaid import BUNDLE, fingerprint, version
from notelab.mermaid import engine as engine_module
from notelab.mermaid.engine import MAX_CHARACTERS, Engine
from notelab.mermaid.parsed_diagrams import EngineMissing, Parsed
from tests.notelab.mermaid.diagram_corpus import BROKEN, VALID

SMALL = "flowchart TD\n a-->|x|b\n"


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine()


def works(engine: Engine) -> bool:
    return engine.parse(SMALL) == Parsed(ok=True, type="flowchart", labels=["a", "b", "x"])


@pytest.mark.parametrize("name", VALID)
def test_a_diagram_that_draws_is_read_with_type_and_labels(engine: Engine, name: str) -> None:
    text, kind, labels = VALID[name]
    parsed = engine.parse(text)
    assert (parsed.error, parsed.line, parsed.ok, parsed.type) == (None, None, True, kind)
    assert not Counter(labels) - Counter(parsed.labels)


@pytest.mark.parametrize("name", BROKEN)
def test_a_diagram_that_does_not_draw_is_refused_at_its_line(engine: Engine, name: str) -> None:
    text, line = BROKEN[name]
    parsed = engine.parse(text)
    assert not parsed.ok
    assert parsed.line == line
    assert parsed.error and "\n" not in parsed.error and "---^" not in parsed.error
    assert parsed.settled


def test_a_broken_diagram_does_not_colour_the_answer_about_the_next(engine: Engine) -> None:
    alone = {name: engine.parse(text) for name, (text, *_) in VALID.items()}
    for text, _ in BROKEN.values():
        engine.parse(text)
        assert works(engine)
    assert {name: engine.parse(text) for name, (text, *_) in VALID.items()} == alone


def test_an_answer_depends_on_the_text_alone(engine: Engine) -> None:
    """A new engine gives the answers of one that has parsed others before."""
    text = VALID["gitGraph"][0]
    assert Engine().parse(text) == engine.parse(text)


def test_labels_are_counted_as_often_as_they_are_drawn(engine: Engine) -> None:
    labels = engine.parse("flowchart LR\n a -->|all-reduce| b -->|all-reduce| c\n").labels
    assert labels.count("all-reduce") == 2


def test_a_comment_is_no_label(engine: Engine) -> None:
    parsed = engine.parse("flowchart LR\n %% all-reduce NVLink GB/s\n a --> b\n")
    assert parsed.labels == ["a", "b"]


def test_styles_links_and_identifiers_are_no_labels(engine: Engine) -> None:
    parsed = engine.parse(
        'flowchart LR\n hidden["seen"]:::hot --> b\n classDef hot fill:#f96\n'
        ' click hidden "https://example.org/all-reduce"\n'
    )
    assert parsed.labels == ["seen", "b"]


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ('"`**bold** and _slanted_ text`"', "bold and slanted text"),
        ('"one<br/>two<br>three"', "one two three"), ('"one\ntwo"', "one two"),
        ('"a #35;1 #lt;b#gt; &amp; c"', "a #1 <b> & c"), ('"x_1 * y_2 * z"', "x_1 * y_2 * z"),
        ('"600 GB/s ①"', "600 GB/s ①"), ('"😀"', "😀"),
    ],
)  # fmt: skip
def test_a_label_is_read_as_it_is_drawn(engine: Engine, written: str, seen: str) -> None:
    assert engine.parse(f"flowchart LR\n a[{written}]\n").labels == [seen]


def test_a_rectangles_colour_is_no_label(engine: Engine) -> None:
    parsed = engine.parse("sequenceDiagram\n rect rgb(1, 2, 3)\n A->>B: x\n end\n")
    assert sorted(parsed.labels) == ["A", "B", "x"]


def test_an_answer_survives_the_content_cache(engine: Engine) -> None:
    parsed = engine.parse(VALID["sequence"][0])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(parsed), type=Parsed) == parsed


def test_carriage_returns_do_not_move_a_line(engine: Engine) -> None:
    for text, line in BROKEN.values():
        assert engine.parse(text.replace("\n", "\r\n")).line == line


def test_a_rule_that_may_match_later_is_not_taken_for_an_anchored_one(engine: Engine) -> None:
    context: Any = engine._context
    answer = context.eval('JSON.stringify(["xb".match(/^(?:a)|b/), "xb".match(/^(?:b)/)])')
    assert answer == '[["b"],null]'


SETTINGS = """
(() => {
  const seen = [];
  const own = { a: null, b: [1, 1, null, [2], [2]], c: { d: { e: { f: null } }, g: [{ h: 1 }] } };
  Object.assign(own, { l: "x", m: {}, n: { o: { p: [1, 1], q: null } } });
  for (const one of [own, { flowchart: own }, { themeVariables: own, theme: "dark" }]) {
    mermaid.mermaidAPI.reset();
    mermaid.mermaidAPI.setConfig(one);
    seen.push(mermaid.mermaidAPI.getConfig());
  }
  mermaid.mermaidAPI.reset();
  return JSON.stringify([...seen, mermaid.mermaidAPI.getConfig()]);
})()
"""


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.ci)])
def test_settings_copied_quickly_are_those_that_mermaid_copies(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    bundle = BUNDLE.read_text("utf-8")
    assert engine_module._speed_up(bundle).count("standIn.merge(") == 1
    monkeypatch.setattr(engine_module, "_speed_up", lambda bundle: bundle)
    slow = Engine()
    configs: list[str] = [each_engine._context.eval(SETTINGS) for each_engine in (engine, slow)]
    assert configs[0] == configs[1]
    assert '"b":[1,null,[2],[2]],' in configs[0]
    for text, *_ in (*VALID.values(), *BROKEN.values())[::step]:
        assert engine.parse(text) == slow.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        'flowchart TD\n a["</script><script>throw 1</script>"] --> b["${1}`\'); throw 1; (\'"]\n',
        "flowchart TD\n __proto__ --> constructor --> toString --> hasOwnProperty\n",
        "classDiagram\n class __proto__\n __proto__ <|-- constructor\n",
        "sequenceDiagram\n __proto__->>constructor: x\n",
        'flowchart TD\n a-->b\n click a "javascript:alert(1)"\n click b call fetch("x")\n',
        '%%{init: {"__proto__": {"x": 1}, "flowchart": {"__proto__": {"y": 1}}}}%%\n' + SMALL,
        "---\nconfig:\n  __proto__:\n    polluted: 1\n---\n" + SMALL,
        '%%{init: {"securityLevel": "loose", "maxTextSize": 1, "maxEdges": 0}}%%\n' + SMALL,
        "%%{init: nonsense}%%\n" + SMALL,
    ],
)
def test_a_hostile_diagram_is_only_a_diagram(engine: Engine, text: str) -> None:
    assert engine.parse(text).ok
    assert works(engine)
    context: Any = engine._context
    assert (
        context is None or context.eval("typeof ({}).polluted + typeof ({}).x") == "undefined" * 2
    )


def test_a_directive_configures_no_other_diagram(engine: Engine) -> None:
    edges = "flowchart TD\n" + "a-->b\n" * 3
    engine.parse('%%{init: {"flowchart": {"defaultRenderer": "elk"}, "maxEdges": 1}}%%\n' + edges)
    assert engine.parse(edges).ok


@pytest.mark.parametrize(
    "text",
    [
        "flowchart TD\n a" + "[" * 40_000 + "\n",
        "flowchart TD\n"
        + "".join(f"subgraph x{i}\n" for i in range(1500))
        + "a\n"
        + "end\n" * 1500,
        "flowchart TD\n" + "\n".join(f"n{i}" for i in range(7000)) + "\n",
        "%%{" + " " * 49_000,
        *(
            pytest.param(text, marks=pytest.mark.ci)
            for text in (
                "mindmap\n" + "".join(" " * i + "n\n" for i in range(1, 280)),
                " " * 49_000,
                'flowchart TD\n a["' + "<a" * 20_000 + '"]\n',
                "---\n" * 12_000,
            )
        ),
    ],
    ids=["brackets", "subgraphs", "nodes", "directive", "mindmap", "blank", "tags", "front"],
)
def test_a_runaway_diagram_is_bounded_and_the_next_is_read(
    engine: Engine, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "SECONDS", 0.1)
    parsed = engine.parse(text)
    assert not parsed.ok and parsed.error
    monkeypatch.undo()
    assert works(engine)


def test_a_diagram_out_of_time_is_unsettled(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "SECONDS", 0.05)
    parsed = engine.parse("%%{" + " " * 49_000)
    assert not parsed.settled and "s to parse" in (parsed.error or "")


def test_a_diagram_out_of_memory_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    context: Any = engine._context
    context.set_memory_limit(context.memory()["memory_used_size"] + (1 << 20))
    monkeypatch.setattr(engine_module, "SECONDS", 20.0)
    parsed = engine.parse("flowchart TD\n" + "\n".join(f"n{i}" for i in range(3000)) + "\n")
    assert not parsed.ok and not parsed.settled
    assert "memory" in (parsed.error or "") or "MiB" in (parsed.error or "")
    assert works(engine)


def test_a_hundred_thousand_nodes_are_refused_before_they_are_read(engine: Engine) -> None:
    parsed = engine.parse("flowchart TD\n" + "\n".join(f"n{i}" for i in range(100_000)))
    assert not parsed.ok and f"{MAX_CHARACTERS:,}" in (parsed.error or "")


@pytest.mark.parametrize("letter", ["\0", "\ud800"])
def test_a_character_that_the_engine_would_not_see_is_refused(engine: Engine, letter: str) -> None:
    parsed = engine.parse(f"flowchart TD\n a{letter}-->b\n")
    assert (parsed.ok, parsed.line) == (False, 2)
    assert "NUL" in (parsed.error or "")


def test_a_diagram_of_four_hundred_edges_is_read_in_time(engine: Engine) -> None:
    text = "flowchart TD\n" + "".join(f"n{i}-->n{i + 1}\n" for i in range(400))
    assert engine.parse(text).ok


def test_a_type_that_mermaid_does_not_hold_is_said_to_be_unchecked(engine: Engine) -> None:
    assert "can't be checked" in (engine.parse("zenuml\n A.b()\n").error or "")


def test_without_an_engine_the_fault_says_how_to_mend_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "quickjs":
            raise ImportError("No module named 'quickjs'")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(EngineMissing, match="quickjs-ng") as caught:
        Engine()
    assert "pip install" in caught.value.hint


def test_a_damaged_bundle_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "version", lambda: ("11.0.0", "0" * 64))
    with pytest.raises(EngineMissing, match="VERSION"):
        Engine()


def test_the_vendored_bundle_is_the_one_that_version_names() -> None:
    number, digest = version()
    assert number.startswith("11.") and len(digest) == 64
    assert len(fingerprint()) == 32
