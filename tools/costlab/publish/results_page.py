"""RESULTS.md and RESULTS.es.md: a result as tables, each value with a row that a note can quote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from costlab.publish import page
from costlab.publish.figures.figures import FIGURES, FOLDER
from costlab.publish.results_tables import TABLES
from costlab.publish.stated_rule import stated
from costlab.publish.tabulated import Table
from costlab.record import quantity
from costlab.record.disturbed import said
from costlab.record.result import Metric, Result, Section, load
from costlab.record.whose import OWNERS, WHOSE
from costlab.record.whose import whose as belongs
from costlab.record.words import Words
from costlab.sections import beside_sweep

STEM = "RESULTS"
REFERENCE = "results/reference.json"

TITLE = Words("What it costs, measured", "Lo que cuesta, medido")
INTRO = Words(
    "One run of `tools/bench` on the machine below. Another machine gives other times, and the "
    "same counts: run `make bench`, and see yours beside these.\n\n"
    "*Measured* is by a clock or a counter of the machine, *counted* by the ledger, *derived* by "
    "arithmetic from those, *modelled* from a stated model of a part that is not here. Link to a "
    "row to quote its value: `make check` holds the two equal.",
    "Una ejecución de `tools/bench` en la máquina de abajo. Otra máquina da otros tiempos, y las "
    "mismas cuentas: ejecuta `make bench` y verás las tuyas junto a estas.\n\n"
    "*Medido* es por un reloj o un contador de la máquina; *contado*, por el libro de cuentas; "
    "*derivado*, por aritmética a partir de ellos; *modelado*, con un modelo declarado de una "
    "parte que no está aquí. Enlaza una fila para citar su valor: `make check` exige que sean "
    "iguales.",
)
SECTIONS = {
    "collectives": Words("Collectives", "Colectivas"),
    "fit": Words("Latency and bandwidth, piece by piece", "Latencia y ancho de banda, por tramos"),
    "tp": Words("Tensor parallelism", "Paralelismo tensorial"),
    "fsdp": Words("Sharded data parallelism", "Paralelismo de datos fragmentado"),
    "pipeline": Words("Pipelines", "Pipelines"),
    "one-gpu": Words("One GPU", "Una GPU"),
    "counts": Words("Counts", "Cuentas"),
}
NOTES = {
    "collectives": Words(
        "algbw is the payload over the time, busbw that times what the algorithm must send for "
        "each byte of it: both as nccl-tests defines them.",
        "algbw es la carga entre el tiempo; busbw, eso por lo que el algoritmo debe enviar por "
        "cada byte: ambos como los define nccl-tests.",
    ),
    "fit": Words(
        "`latency` is that of the first piece, `bandwidth` that of the last; `residual` the median "
        "error at the sizes fitted, `plain-residual` that of one line through all of them; "
        "`holdout` the error at sizes that a fit on every second one has not seen, below 1 MiB and "
        "from there.",
        "`latency` es la del primer tramo, `bandwidth` el ancho de banda del último; `residual` el "
        "error mediano en los tamaños ajustados, `plain-residual` el de una sola recta por todos; "
        "`holdout` el error en tamaños que un ajuste sobre uno de cada dos no ha visto, por debajo "
        "de 1 MiB y desde ahí.",
    ),
    "tp": Words(
        "A step is forward, loss, backward and the optimizer, of the course's GPT at each hidden "
        "size; at 128 it is the grammar tutor. One thread a rank. A part is the median of its "
        "rounds and its share that of the same rounds' steps. `other` is a residual, what is left "
        "of a round's step when the other parts, each run alone in the same round, are taken off: "
        "norms, optimizer, waiting, and that nothing takes within a step what it takes alone; "
        "where its spread includes 0 there may be nothing left.",
        "Un paso es forward, pérdida, backward y optimizador, del GPT del curso con cada tamaño "
        "hidden; con 128 es el tutor de gramática. Un hilo por rank. Una parte es la mediana de "
        "sus rondas, y su fracción, la de los pasos de esas rondas. `other` es un residuo, lo que "
        "queda del paso de una ronda al quitarle las demás partes, cada una ejecutada a solas en "
        "la misma ronda: normas, optimizador, esperas, y que nada tarda dentro de un paso lo que "
        "tarda a solas; donde su dispersión incluye el 0, puede que no quede nada.",
    ),
    "fsdp": Words(
        "`silent` is our step over a link that sends nothing, `communication` our step's "
        "collectives run alone, `communication-cost` what the first would save of the step, round "
        "by round; where its spread includes 0 it can't be told from noise. `hidden-share` says "
        "how much of the communication lay beneath compute, of our mini-FSDP: PyTorch's FSDP is "
        "not looked into, only timed.",
        "`silent` es nuestro paso sobre un enlace que no envía nada; `communication`, las "
        "colectivas de nuestro paso a solas; `communication-cost`, lo que lo primero ahorraría del "
        "paso, ronda a ronda; donde su dispersión incluye el 0, no se distingue del ruido. "
        "`hidden-share` dice cuánta comunicación quedó bajo el cómputo, en nuestro mini-FSDP: en "
        "el FSDP de PyTorch no se mira dentro, solo se cronometra.",
    ),
    "one-gpu": Words(
        "One card measures the matrices that TP leaves to a rank. The all-reduce between cards "
        "that are not here is modelled on a named link, and says so.",
        "Una tarjeta mide las matrices que TP deja a un rank. El all-reduce entre tarjetas que no "
        "están aquí se modela sobre un enlace con nombre, y así se dice.",
    ),
}
# What a run's provenance calls things, for readers of Spanish.
FACTS = {
    "date": "fecha", "command": "orden", "seed": "semilla", "device": "dispositivo",
    "backend": "backend", "launcher": "lanzador", "processor": "procesador", "cores": "núcleos",
    "cores-online": "núcleos en línea", "pinning": "fijación de núcleos",
    "memory-bytes": "bytes de memoria", "load-before": "carga previa", "system": "sistema",
    "resumed": "reanudado",
    "commit": "commit", "clean": "árbol limpio", "gpus": "GPU", "links": "enlaces",
    "driver": "controlador",
}  # fmt: skip
MACHINE = Words("The machine", "La máquina")
PARTIAL = Words("This section broke off: {note}.", "Esta sección se interrumpió: {note}.")
REST = Words("The rest", "El resto")
VALUE = Words("value", "valor")
SPREAD = Words("spread", "dispersión")
N = "n"
HOW = Words("how", "cómo")
METRIC = Words("metric", "métrica")
# Drawn, each span of it, and not quoted.
_DRAWN = "timeline"


def write(lab: Path) -> list[Path]:
    """Write the page in every language beside `lab`/results/reference.json, whose figures stand.

    Raises:
        ResultError: there is no such result, or it can't be read.
    """
    result = load(lab / REFERENCE)
    paths = []
    for language in page.LANGUAGES:
        path = lab / page.name(STEM, language)
        path.write_text(text(result, lab, language), "utf-8")
        paths.append(path)
    return paths


def text(result: Result, lab: Path, language: str) -> str:
    """Return the page.

    Args:
        result: what `lab`/results/reference.json holds.
        lab: the folder; figures that are there are shown and, like the result, named by SHA-256.
        language: "en" or "es".
    """
    drawn = [stem for stem in FIGURES if (lab / FOLDER / f"{stem}-light.svg").is_file()]
    files = [f"{FOLDER}/{stem}-{shade}.svg" for stem in drawn for shade in ("light", "dark")]
    lines = page.head(TITLE.of(language), lab, [REFERENCE, *files])
    lines += [INTRO.of(language), "", WHOSE.of(language), "", stated(language), ""]
    lines += [f"## {MACHINE.of(language)}", "", *_machine(result, language)]
    left = {
        name: metric for name, metric in result.metrics().items() if metric.name.topic != _DRAWN
    }
    for section, title in SECTIONS.items():
        body: list[str] = []
        for stem, one in FIGURES.items():
            if one.section == section and stem in drawn:
                body += page.figure(FOLDER, stem, one.alternative.of(language))
                body += [one.caption.of(language), ""]
        for table in TABLES:
            if table.section == section:
                body += _table(table, left, result, language)
        if body:
            note = [NOTES[section].of(language), ""] if section in NOTES else []
            course = _course(result, section, language)
            lines += [f"## {title.of(language)}", "", *course, *note, *body]
    if left:
        found = [([f"`{one.id}`"], one) for one in left.values()]
        body = _rows([METRIC.of(language)], "<", found, language)
        lines += page.folded(REST.of(language), body)
    return page.sealed(lines)


def _machine(result: Result, language: str) -> list[str]:
    said = Words("of the run", "de la ejecución").of(language)
    spanish = language != page.LANGUAGES[0]
    rows = [
        (
            FACTS.get(key, key) if spanish else key,
            ", ".join(map(str, value)) if isinstance(value, list) else f"{value}",
        )
        for key, value in result.provenance.items()
    ]
    return page.table([said, VALUE.of(language)], "<<", rows)


def _course(result: Result, section: str, language: str) -> list[str]:
    found = result.sections.get(section, Section(status="complete"))
    lines = []
    if found.status != "complete":
        lines += [PARTIAL.of(language).format(note=found.note), ""]
    if found.load:
        line = f"{said(found.load).of(language)}."
        lines += [f"**{line}**" if found.load.spoiled else line, ""]
    return lines


def _table(table: Table, left: dict[str, Metric], result: Result, language: str) -> list[str]:
    """Return a table's lines, and take its metrics from `left`."""
    found = table.rows(left.values())
    if not found:
        return []
    metrics = result.metrics()
    for metric in found:
        del left[metric.id]
    cells = [([one.cell(metric, metrics) for one in table.columns], metric) for metric in found]
    titles = [column.title.of(language) for column in table.columns]
    align = "".join("<" if column.fields else ">" for column in table.columns)
    body = _rows(titles, align, cells, language)
    if table.swept and (said := beside_sweep.said(metrics, table.section, language)):
        body += [said, ""]
    title = table.title.of(language)
    return page.folded(title, body) if table.folded else [f"### {title}", "", *body]


def _rows(
    titles: Sequence[str], align: str, found: Sequence[tuple[Sequence[str], Metric]],
    language: str,
) -> list[str]:  # fmt: skip
    """Return a table: given cells, whose each number is, the number, its spread, how it was had."""
    whose = [belongs(one) for _, one in found]
    kept = [place for place in range(len(OWNERS)) if any(cells[place] for cells in whose)]
    columns = [*titles, *(OWNERS[place].of(language) for place in kept)]
    columns += [VALUE.of(language), SPREAD.of(language), N, HOW.of(language)]
    align += "<" * len(kept) + ">>><"
    rows = [
        _row([*cells, *(mine[place] for place in kept)], metric, language)
        for (cells, metric), mine in zip(found, whose, strict=True)
    ]
    return page.table(columns, align, rows)


def _row(cells: Sequence[str], metric: Metric, language: str) -> list[str]:
    anchor = f'<a id="{page.row_of(metric.id)}"></a>'
    value = f"{anchor}**{quantity.shown(metric)}**"
    spread, count = quantity.spread(metric), quantity.count(metric)
    return [*cells, value, spread, count, page.how(metric, language)]
