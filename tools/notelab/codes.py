"""The rules' stable codes and their names. Each rule has a page in docs/reference/rules."""

from collections.abc import Iterable

from notelab.errors import NotelabError, did_you_mean

RULES: dict[str, str] = {
    # N1xx: stop conditions
    "N101": "missing-page",
    "N102": "unreadable-page",
    "N103": "front-matter",
    "N104": "too-many-words",
    "N105": "too-few-choices",
    "N106": "choice-length",
    "N107": "choice-without-title",
    "N108": "choice-without-citation",
    "N109": "closing-missing",
    "N110": "closing-not-last",
    "N111": "closing-not-one-paragraph",
    "N112": "closing-ties-nothing",
    "N113": "hidden-character",
    "N114": "too-few-new-choices",
    "N120": "pin-missing",
    "N121": "pin-malformed",
    "N122": "pin-unknown",
    "N123": "commit-disagrees",
    "N124": "release-disagrees",
    # N2xx: citations
    "N201": "malformed-citation",
    "N202": "range-reversed",
    "N203": "unknown-path",
    "N204": "ambiguous-path",
    "N205": "past-the-end",
    "N206": "too-wide",
    "N207": "straddling",
    "N208": "off-statement",
    "N209": "not-anchored",
    "N210": "not-locked",
    "N211": "lock-disagrees",
    "N212": "lock-unused",
    "N213": "unproved",
    "N214": "foreign-source",
    "N215": "weak-anchor",
    "N216": "foreign-permalink",
    "N217": "behind-the-pin",
    "N218": "moved-lines",
    "N219": "changed-lines",
    "N230": "unjudged-citation",
    "N231": "label-disagrees",
    "N232": "absent-file",
    "N233": "other-form",
    "N234": "quotation-differs",
    # N3xx: diagrams
    "N301": "diagram-missing",
    "N302": "diagram-broken",
    "N303": "diagram-type",
    "N304": "diagram-labels",
    "N305": "diagram-too-long",
    "N306": "diagram-unexpected",
    "N307": "diagram-unchecked",
    "N308": "diagram-times",
    # N4xx: numbers
    "N401": "number-without-row",
    "N402": "number-differs",
    "N403": "number-in-other-language",
    "N404": "results-stale",
    "N405": "results-without-source",
    # N5xx: languages
    "N501": "translation-missing",
    "N502": "translation-choices",
    "N503": "translation-citations",
    "N504": "translation-numbers",
    "N505": "translation-diagrams",
    "N506": "untranslated",
    # N6xx: constraints
    "N601": "pasted-source",
    "N602": "drawn-image",
    # N7xx: waivers
    "N701": "malformed-waiver",
    "N702": "idle-waiver",
}


def select_codes(typed: Iterable[str], default: Iterable[str] = ()) -> frozenset[str]:
    """Return the codes that options name, each as a code or its beginning, with commas between.

    Raises:
        NotelabError: no rule's code begins like this.
    """
    parts = [part.strip().upper() for text in typed for part in text.split(",") if part.strip()]
    for part in parts:
        if not any(code.startswith(part) for code in RULES):
            hint = did_you_mean(part, RULES) or "`shardbook explain` lists the rules"
            raise NotelabError(f"{part[:40]!r} is no rule's code, nor how one begins", hint=hint)
    chosen = frozenset(code for code in RULES if code.startswith(tuple(parts)))
    return chosen if parts else frozenset(default)
