"""A page is parsed once: what is read is what is written, and a text is a text."""

from __future__ import annotations

import pytest
from markupsafe import Markup

from sitelab.pages.allowed_html import clean_html
from sitelab.pages.tree import Element, parse
from tests.site.parsed import apply_change


@pytest.mark.parametrize(
    "html",
    [
        '<p title="&lt;b&gt; &quot;`&amp;">a &lt;b&gt; &amp;lt; <br>c<img src="x"></p>',
        "<ul><li>a<ul><li>b</li></ul></li></ul>text",
        "<pre><code>a\n\n  b</code></pre>",
    ],
)
def test_a_page_is_written_as_it_was_read(html: str) -> None:
    assert clean_html(html) == html
    assert parse(html).html() == html


def test_what_a_change_puts_in_is_text_unless_the_site_made_it() -> None:
    put = ["<b>", Markup("<i>x</i>"), Element("em", {"title": '"<'}, ["&"])]
    html = apply_change("<p>a</p>", lambda page: page.replace_texts(lambda _: put, frozenset()))
    assert html == '<p>&lt;b&gt;<i>x</i><em title="&quot;&lt;">&amp;</em></p>'
