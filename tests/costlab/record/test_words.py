"""The bench's words are in one file, in both languages, with the same placeholders."""

from __future__ import annotations

import re
import tomllib

from costlab.record.words import Words, words
from tests.costlab.tiny_run import ROOT

CODE = ROOT / "tools" / "costlab"
TEXTS = {
    f"{page}.{name}": translations
    for page, names in tomllib.loads((CODE / "words.toml").read_text("utf-8")).items()
    for name, translations in names.items()
}


def test_whatever_is_said_is_said_in_both_languages() -> None:
    assert len(TEXTS) > 100
    for name, translations in TEXTS.items():
        assert words(name) == Words(**translations)
        assert all(text.strip() for text in translations.values()), name


def test_a_translation_has_the_blanks_of_its_original() -> None:
    for name, translations in TEXTS.items():
        english, spanish = (
            sorted(re.findall(r"\{\w*\}", translations[language])) for language in ("en", "es")
        )
        assert english == spanish, name


def test_every_entry_is_said_somewhere_and_nothing_else_is() -> None:
    files = [*CODE.rglob("*.py"), *CODE.rglob("*.jinja")]
    code = "\n".join(path.read_text("utf-8") for path in files)
    whole = set(re.findall(r'\btexts\("([\w-]+)"\)', code))
    one_by_one = {name for name in TEXTS if name.partition(".")[0] not in whole}
    assert set(re.findall(r"\b(?:words|say)\(\s*[\"']([\w.-]+)", code)) == one_by_one
    assert whole <= {name.partition(".")[0] for name in TEXTS}
