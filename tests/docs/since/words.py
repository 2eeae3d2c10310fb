"""The words of the pages "Since the pin" around their tables, in both languages."""

_EN = {
    "top": """\
---
title: Since the pin
---

<!-- written by `python -m tests.docs.since.pages`: all of it, from docs/measured/since.json -->

# Since the pin

This workbook's citations are proved at its pins, and its sentences are about the code that stands
there. The sources have moved on. This page says what a newer release made of each citation, which
sentences somebody has read again and found false, and which are to be read again first.

What is to be read comes in the order in which it is likely to be false: sentences that name what
vanished from the source's whole tree, or appeared in it; then those whose lines are gone; then
those whose lines were edited so that a name the sentence says, or the text around it, stands there
no more. The rest is folded: its lines changed, and nothing that the sentence names left them.""",
    "carried": "{total} distinct citations: {kinds}.",
    "names": "Names in code font that changed in the whole tree: {names}.",
    "holds": "What no longer holds",
    "order": "To be read again, in this order",
    "claims": "Claims whose evidence is on the list, to be judged again: {claims}.",
    "folded": "{count} more, of which nothing named has left",
    "now": "Now",
    "on": "on",
    "quoted": "“{text}”",
    "false": "false",
    "partly": "in part",
    "same": "where they stood",
    "moved": "moved",
    "reformatted": "reformatted",
    "edited": "edited",
    "gone": "gone",
    "vanished": "vanished",
    "appeared": "appeared",
    "gone lines": "the lines are gone",
    "GONE": "the lines are gone, and with them {names}",
    "NAME_LEFT": "{names} left the lines",
    "BLOCK_NAME_LEFT": "{names}, which the text around it names, left the lines",
    "same words": "the same words, under another condition or in another function",
    "CHANGED": "{share} % of the lines differs",
}
_ES = {
    "top": """\
---
title: Desde el pin
---

<!-- escrito por `python -m tests.docs.since.pages`: toda ella, de docs/measured/since.json -->

# Desde el pin

Las citas de este cuaderno están demostradas en sus pins, y sus frases hablan del código que hay
allí. Las fuentes han seguido adelante. Esta página dice qué ha sido de cada cita en una versión más
nueva, qué frases ha releído alguien y ha encontrado falsas, y cuáles conviene releer primero.

Lo que hay que releer va ordenado por lo probable que es que sea falso: primero las frases que
nombran algo que ha desaparecido del árbol entero de la fuente, o que ha aparecido en él; después,
aquellas cuyas líneas ya no están; luego, aquellas cuyas líneas se editaron de modo que un nombre
que dice la frase, o el texto que la rodea, ya no está en ellas. El resto va plegado: sus líneas
cambiaron, pero no ha salido de ellas nada de lo que nombra la frase.""",
    "carried": "{total} citas distintas: {kinds}.",
    "names": "Nombres en letra de código que cambiaron en el árbol entero: {names}.",
    "holds": "Lo que ya no se cumple",
    "order": "Para releer, en este orden",
    "claims": "Afirmaciones con evidencia en la lista, que hay que volver a juzgar: {claims}.",
    "folded": "{count} más, de las que no ha salido nada de lo nombrado",
    "now": "Ahora",
    "on": "sobre",
    "quoted": "«{text}»",
    "false": "falsa",
    "partly": "en parte",
    "same": "donde estaban",
    "moved": "movidas",
    "reformatted": "con otro formato",
    "edited": "editadas",
    "gone": "sin sitio",
    "vanished": "ha desaparecido",
    "appeared": "ha aparecido",
    "gone lines": "las líneas ya no están",
    "GONE": "las líneas ya no están, ni con ellas {names}",
    "NAME_LEFT": "{names} ya no está en las líneas",
    "BLOCK_NAME_LEFT": "{names}, que nombra el texto de alrededor, ya no está en las líneas",
    "same words": "las mismas palabras, bajo otra condición o en otra función",
    "CHANGED": "difiere el {share} % de las líneas",
}
WORDS = {"en": _EN, "es": _ES}
