"""What a results page says of its values and spreads: the one rule (`statistic`), in words."""

from __future__ import annotations

from costlab.record.words import Words

RULE = Words(
    "**One rule for every row.** A value is the median of *n* observations, each as long as its "
    "slowest rank took; after a slash stands from how many launches they are, and then it is the "
    "median of the launches. The spread is the interval that holds the true median with 95 %, read "
    "off the sorted observations; of five or fewer it goes from the least to the most. A ratio is "
    "taken within each round, and its value is the median of those. Of a collective's calls, "
    "microseconds each, a launch's value is their 20th percentile. Rounds in which something else "
    "used the cores are dropped, and counted. The spread of a fitted line is the 95 % interval of "
    "its parameter, and of a crossing that of resampled rounds. [More of it]({page}).",
    "**Una regla para cada fila.** Un valor es la mediana de *n* observaciones, cada una tan larga "
    "como la de su rank más lento; tras una barra está de cuántos lanzamientos son, y entonces es "
    "la mediana de los lanzamientos. La dispersión es el intervalo que contiene la mediana "
    "verdadera con un 95 %, leído en las observaciones ordenadas; con cinco o menos va del mínimo "
    "al máximo. Un cociente se toma dentro de cada ronda, y su valor es la mediana de ellos. De "
    "las llamadas de una colectiva, microsegundos cada una, el valor de un lanzamiento es su "
    "percentil 20. Las rondas en que otra cosa usó los núcleos se descartan, y se cuentan. La "
    "dispersión de una recta ajustada es el intervalo del 95 % de su parámetro; la de un cruce, "
    "el de rondas remuestreadas. [Más sobre ello]({page}).",
)
BENCH = Words("../../docs/reference/bench.md", "../../docs/reference/bench.es.md")


def stated(language: str) -> str:
    """Return the rule that a result's numbers follow."""
    return RULE.of(language).format(page=BENCH.of(language))
