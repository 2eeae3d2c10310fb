"""One Spanish term for one thing: the words that the glossary has replaced do not come back."""

import re

import pytest

from tests.docs.page import list_pages

PROSE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)]*\)|<[^>]+>|\A---\n.*?\n---\n", re.S)
# The pattern that a page must not hold, and the glossary's term.
TERMS = {
    r"\bcubos?\b": "bucket",
    r"\branks? tensorial(?:es)?\b": "rank de tensor",
    r"\brangos? (?:tensorial(?:es)?|de tensor|de datos)\b": "rank de tensor, rank de datos",
    r"\bhacia (?:a?delante|atrás)\b": "forward, backward",
    r"\bdispatchers?\b(?!\*)": "repartidor",
    r"\bmicro-?lotes?\b": "micro-batch",
    r"\blibros? de cuentas\b": "registro de bytes",
    r"\brecomputaci(?:ón|ones)\b": "recómputo",
    r"\bdesactivad[oa]s? por defecto\b": "inactivo por defecto",
    r"\b(?:rejilla|cuadrícula)s?\b": "malla",
    r"(?<!-)(?<!\?\? question )\bhidden\b(?!-)": "tamaño oculto",
    r"\bbalance(?:o|ar|ad[oa]s?)\b": "equilibrado, equilibrar",
}
PAGES = [page for page in list_pages() if page.name.endswith(".es.md")]


@pytest.mark.parametrize("pattern", TERMS)
def test_a_thing_has_one_spanish_term(pattern: str) -> None:
    lines = [
        f"{page.name}: {match[0]}"
        for page in PAGES
        for match in re.finditer(pattern, PROSE.sub("", page.read_text("utf-8")), re.I)
    ]
    assert not lines, f"write “{TERMS[pattern]}”"
