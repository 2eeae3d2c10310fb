"""A number and its unit, and an option in code, are on one line; other text is not changed."""

from __future__ import annotations

import pytest

from sitelab.pages.line_breaks import (
    join_punctuation,
    make_numbers_nonbreaking,
    make_options_nonbreaking,
)
from tests.site.parsed import apply_change


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("so 15 %.", "so 15~%."),
        ("324 µs at 2.01 GiB/s = 2.2 s", "324~µs at 2.01~GiB/s = 2.2~s"),
        ("196 608 de vuelta; 2000 rondas", "196~608 de vuelta; 2000 rondas"),
        ("(60.7 ms – 65.4 ms)", "({60.7~ms – 65.4~ms})"),
        ("(0.71× – 0.77×)", "({0.71× – 0.77×})"),
        ('<a href="#a 1 s">29 %</a> (29 % – 29 %)', '<a href="#a 1 s">29~%</a> ({29~% – 29~%})'),
        ("in [1.2, 1.4] and [−3 %, 12 %]", "in {[1.2, 1.4]} and {[−3~%, 12~%]}"),
        ("runs p − s − 1 forwards", "runs {p − s − 1} forwards"),
        ("min(m, p − s), 2(p − s − 1) + 1", "min(m, {p − s)}, 2({p − s − 1) + 1}"),
        ("es 2(n − 1)/n · S", "es 2({n − 1)/n · S}"),
        ("8 · 1.5 GB = <b>12 GB</b>", "{8 · 1.5}~GB = <b>12~GB</b>"),
        (
            "tensor × pipeline × data, a = b and so on",
            "tensor × pipeline × data, {a = b} and so on",
        ),
        ("a + b + c + d + e + f + g + h + i", None),  # longer than a telephone's line
        ("4 ranks, 2 Bytes, 3 s-shaped, page 1 – a word, [see, 4], TP · FSDP", None),
        ("<code>sleep 5 s</code> <pre>1 KiB</pre>", None),
    ],
)
def test_a_number_is_not_torn_from_its_unit(text: str, whole: str | None) -> None:
    shown = (whole or text).replace("~", "\N{NO-BREAK SPACE}")
    shown = shown.replace("{", '<span class="whole">').replace("}", "</span>")
    assert apply_change(text, make_numbers_nonbreaking) == shown


@pytest.mark.parametrize("item", ["<code>f</code>", '<a href="#"><code>f</code></a>'])
def test_code_has_the_punctuation_that_touches_it_on_its_line(item: str) -> None:
    joined = f'a <span class="joined-start joined-end">({item}).</span> And {item} or <b>c</b>'
    assert apply_change(f"a ({item}). And {item} or <b>c</b>", join_punctuation) == joined
    ends = f'<span class="joined-end">{item}:</span> <span class="joined-start">«{item}</span>'
    assert apply_change(f"{item}: «{item}", join_punctuation) == ends


@pytest.mark.parametrize(
    ("code", "whole"),
    [
        ("--save-every", ["--save-every"]),
        ("train.py --cp N --cp-kind ring", ["--cp", "--cp-kind"]),
        ("pytest -m ci", ["-m"]),
        ("--steps=50", ["--steps"]),
        ("reduce-scatter", []),
        ("a--b", []),
        ("-1", []),
    ],
)
def test_each_option_of_a_line_of_code_is_kept_whole(code: str, whole: list[str]) -> None:
    html = apply_change(f"<p><code>{code}</code></p>", make_options_nonbreaking)
    assert html.count("<span") == len(whole)
    for option in whole:
        assert f'<span class="whole">{option}</span>' in html
    assert html.replace('<span class="whole">', "").replace("</span>", "") == (
        f"<p><code>{code}</code></p>"
    )


@pytest.mark.parametrize(
    "html",
    [
        "<p>not --code</p>",
        "<pre><code>bench --out report</code></pre>",
        "<pre><span></span><code>bench --out report</code></pre>",
    ],
)
def test_prose_and_blocks_stay_as_they_are(html: str) -> None:
    assert apply_change(html, make_options_nonbreaking) == html


def test_each_option_in_a_block_of_commands_is_kept_whole_and_none_in_output() -> None:
    commands = (
        '<div class="language-bash highlight"><pre><span></span><code>torchrun<span class="w"> '
        '</span>--nproc-per-node<span class="o">=</span><span class="m">2</span> --pp'
        "</code></pre></div>"
    )
    output = '<div class="language-text highlight"><pre><code>--pp</code></pre></div>'
    html = apply_change(commands + output, make_options_nonbreaking)
    assert html.count('<span class="whole">') == 2
    assert '</span><span class="whole">--nproc-per-node</span><span class="o">' in html
    assert html.endswith(output)
