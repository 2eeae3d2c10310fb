"""The words of the pages "Since the pin" around their tables, in both languages."""

_EN = {
    "top": """\
---
title: Since the pin
---

<!-- written by `python -m tests.docs.since.pages`: all of it, from docs/measured/since.json -->

# Since the pin

This workbook proves its citations at its pins, and its sentences describe the code there. The
sources have changed since. This page says what became of each citation at a newer release, and
which sentences are false there.

Two lists follow for each source. The first has the sentences that a reader compared with the newer
code and found false, entirely or in part. The second has every sentence whose lines changed, with
its verdict. It is ordered by risk. First come sentences with a name that vanished from the whole
tree of the source, or that appeared in it. Next come sentences whose lines are gone. Then come
those whose edited lines lost a name that the sentence, or the text around it, mentions. The rest is
folded: its lines changed, but they kept every name that the sentence mentions.

A sentence whose lines are unchanged is on neither list. Code elsewhere can still have made it
false.""",
    "carried": "The pages have {total} distinct citations of it. At the newer release: {kinds}.",
    "names": "Names on the pages that vanished from its tree, or appeared in it: {names}.",
    "holds": "What no longer holds",
    "read": "Of the sentences on the second list, {counts}.",
    "false one": "1 is false",
    "false many": "{count} are false",
    "partly one": "1 holds in part",
    "partly many": "{count} hold in part",
    "true one": "1 holds",
    "true many": "{count} hold",
    "unread one": "1 hasn't been read at the newer release",
    "unread many": "{count} haven't been read at the newer release",
    "order": "Sentences whose lines changed, ordered by risk",
    "claims": "Claims with evidence on the second list, and whether the verdict on each holds: "
    "{claims}.",
    "claim false": "no",
    "claim partly": "in part",
    "claim true": "yes",
    "claim unread": "not read",
    "folded": "{count} more citations, whose lines kept every name",
    "now": "Now",
    "on": "on",
    "quoted": "“{text}”",
    "false": "false",
    "partly": "in part",
    "true": "holds",
    "unread": "not read",
    "same": "in the same place",
    "moved": "moved",
    "reformatted": "in another layout",
    "edited": "edited",
    "gone": "gone",
    "vanished": "vanished",
    "appeared": "appeared",
    "gone lines": "the lines are gone",
    "GONE": "the lines are gone, and {names} with them",
    "NAME_LEFT": "{names} left the lines",
    "BLOCK_NAME_LEFT": "{names}, which the text around the sentence mentions, left the lines",
    "same words": "the words are the same, but under another condition or in another function",
    "CHANGED": "{share} % of the words differ",
}
_ES = {
    "top": """\
---
title: Desde el pin
---

<!-- escrito por `python -m tests.docs.since.pages`: toda ella, de docs/measured/since.json -->

# Desde el pin

Este cuaderno demuestra sus citas en sus pins, y sus frases describen el código que hay allí. Las
fuentes han cambiado desde entonces. Esta página dice qué ha sido de cada cita en una versión más
nueva y qué frases son falsas en ella.

De cada fuente hay dos listas. La primera tiene las frases que un lector comparó con el código más
nuevo y encontró falsas, del todo o en parte. La segunda tiene todas las frases cuyas líneas
cambiaron, con su veredicto. Está ordenada por riesgo. Primero van las frases con un nombre que ha
desaparecido del árbol entero de la fuente, o que ha aparecido en él. Después van las frases cuyas
líneas ya no están. Luego, aquellas cuyas líneas editadas perdieron un nombre que menciona la frase
o el texto que la rodea. El resto va plegado: sus líneas cambiaron, pero conservan todos los nombres
que menciona la frase.

Una frase cuyas líneas no han cambiado no está en ninguna de las listas. Aun así, otro código puede
haberla hecho falsa.""",
    "carried": "Las páginas tienen {total} citas distintas de ella. "
    "En la versión más nueva: {kinds}.",
    "names": "Nombres de las páginas que han desaparecido de su árbol, o aparecido en él: {names}.",
    "holds": "Lo que ya no se cumple",
    "read": "De las frases de la segunda lista, {counts}.",
    "false one": "1 es falsa",
    "false many": "{count} son falsas",
    "partly one": "1 se cumple en parte",
    "partly many": "{count} se cumplen en parte",
    "true one": "1 se cumple",
    "true many": "{count} se cumplen",
    "unread one": "1 no se ha leído en la versión más nueva",
    "unread many": "{count} no se han leído en la versión más nueva",
    "order": "Frases cuyas líneas cambiaron, ordenadas por riesgo",
    "claims": "Afirmaciones con pruebas en la segunda lista, y si el veredicto sobre cada una se "
    "cumple: {claims}.",
    "claim false": "no",
    "claim partly": "en parte",
    "claim true": "sí",
    "claim unread": "sin leer",
    "folded": "{count} citas más, cuyas líneas conservan todos los nombres",
    "now": "Ahora",
    "on": "sobre",
    "quoted": "«{text}»",
    "false": "falsa",
    "partly": "en parte",
    "true": "se cumple",
    "unread": "sin leer",
    "same": "en el mismo sitio",
    "moved": "movidas",
    "reformatted": "con otro formato",
    "edited": "editadas",
    "gone": "sin sitio",
    "vanished": "ha desaparecido",
    "appeared": "ha aparecido",
    "gone lines": "las líneas ya no están",
    "GONE": "las líneas ya no están, ni con ellas {names}",
    "NAME_LEFT": "{names} ya no está en las líneas",
    "BLOCK_NAME_LEFT": "{names}, que menciona el texto de alrededor, ya no está en las líneas",
    "same words": "las palabras son las mismas, pero bajo otra condición o en otra función",
    "CHANGED": "difiere el {share} % de las palabras",
}
WORDS = {"en": _EN, "es": _ES}
