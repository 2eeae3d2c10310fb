"""The museum's pages, made from the rooms' record and from the words of rooms.toml.

    python -m tests.shardlab.compositions.pages         writes both pages

`record`, in the same folder, runs the rooms first.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.shardlab.compositions.room import RECORD, Numbers, recorded

LAB = RECORD.parents[1]
DRAWN = LAB / "results" / "drawn.json"
PAGES = {"en": LAB / "MUSEUM.md", "es": LAB / "MUSEUM.es.md"}

WORDS = {
    "en": {
        "top": """\
---
title: The museum of compositions
commit:
  megatron: {megatron:.12}
  pytorch: {pytorch:.12}
---

<!-- written by `python -m tests.shardlab.compositions.record`, from rooms.toml, results/ -->

# The museum of compositions

Each kind of parallelism is right by itself. Where two of them meet, gradients can be wrong
without an error: the loss still falls, AdamW hides a constant factor, and comparing a cluster
with one process is expensive. Each room below shows one such fault in seconds on a CPU. Most
rooms run megatron-core 0.16.1 or torch 2.13 itself, on one or two ranks over gloo. Where the
source needs a GPU, the room runs a minimal model of the fault and says so. The last seven rooms
train nothing: they show what goes wrong between a corpus and the code that reads it ([theory
7](../../docs/theory/07-from-bin-idx-to-a-batch.md)).

A test in `tests/shardlab/compositions` measures each number and fails when it changes. An *error*
is the largest difference from the right tensor, divided by that tensor's largest entry. *Fixed
in* and *not fixed in* name a release whose source was read. The states of public threads were
read on {seen} in a stored copy, which may be older than the thread.

| where they meet | measured | status |
|---|---|---|""",
        "model": "**A minimal model, not the source.** ",
        "cause": "Cause",
        "threads": "Threads on {seen}",
        "no threads": "Threads",
        "none": "none that we found",
        "status": "Status",
        "ours": "In shardlab",
        "fixed": "fixed in {release}",
        "unfixed": "not fixed in {release}",
        "same lines": "the cited lines are the same there",
        "open": "open",
        "closed": "closed",
        "merged": "merged",
        "unknown": "state not known",
        "drawn": """\
<a id="ourselves"></a>

## The same question for shardlab

The kernels of this workbook get the same question. A property test draws a random composition of
what they offer: tensor, sequence, context, expert, pipeline (four schedules), data and fully
sharded parallelism; tied and frozen parameters, packed documents, accumulation, dropout,
activation recomputation, fused products, fp64 main gradients; means, sums and counted tokens;
three auxiliary losses, the z-loss and capacities. The test takes one step and compares the loss,
the gradient of every parameter and the gradient norm with those of one process in fp64. It
compares dropout as well: the single process joins the masks of all ranks.

`make benchmark` drew {drawn} compositions on {ranks} ranks, {different} of them different. In the
{exact} in which no expert scores with a sigmoid, the largest relative difference was {worst:.0e}.
In the others it was {worst_fp32:.0e}: the router's scores are in fp32, as in Megatron, and the
last bit of torch's fp32 sigmoid depends on an element's position in its row. The test suite draws
the first few compositions again. **Of {drawn} drawn compositions, {wrong} took a step that
differs from the step of one process.**
""",
    },
    "es": {
        "top": """\
---
title: El museo de las composiciones
commit:
  megatron: {megatron:.12}
  pytorch: {pytorch:.12}
---

<!-- lo escribe `python -m tests.shardlab.compositions.record`, con rooms.toml y results/ -->

# El museo de las composiciones

Cada tipo de paralelismo es correcto por sí solo. Donde se juntan dos, los gradientes pueden estar
mal sin que salte ningún error: la pérdida sigue bajando, AdamW oculta un factor constante y
comparar un clúster con un solo proceso es caro. Cada sala muestra uno de esos fallos, en segundos
y en una CPU. La mayoría ejecuta los propios megatron-core 0.16.1 o torch 2.13, con uno o dos
ranks sobre gloo. Donde la fuente necesita una GPU, la sala ejecuta un modelo mínimo del fallo y
lo dice. En las siete últimas no se entrena nada: muestran lo que falla entre un corpus y el
código que lo lee ([teoría 7](../../docs/theory/07-from-bin-idx-to-a-batch.es.md)).

Una prueba de `tests/shardlab/compositions` mide cada número y falla si cambia. Un *error* es la
mayor diferencia con el tensor correcto, dividida entre la mayor componente de este. *Corregido
en* y *sin corregir en* nombran una versión cuyo código se leyó. El estado de los hilos públicos
se leyó el {seen} en una copia guardada, que puede ser más antigua que el hilo.

| dónde se juntan | medido | estado |
|---|---|---|""",
        "model": "**Un modelo mínimo, no la fuente.** ",
        "cause": "Causa",
        "threads": "Hilos a {seen}",
        "no threads": "Hilos",
        "none": "ninguno que hayamos encontrado",
        "status": "Estado",
        "ours": "En shardlab",
        "fixed": "corregido en {release}",
        "unfixed": "sin corregir en {release}",
        "same lines": "las líneas citadas son allí las mismas",
        "open": "abierto",
        "closed": "cerrado",
        "merged": "integrado",
        "unknown": "estado desconocido",
        "drawn": """\
<a id="ourselves"></a>

## La misma pregunta para shardlab

A los kernels de este cuaderno se les hace la misma pregunta. Una prueba de propiedades sortea una
composición de lo que ofrecen: paralelismo de tensor, de secuencia, de contexto, de expertos, de
pipeline (cuatro calendarios), de datos y totalmente fragmentado; parámetros atados y congelados,
documentos empaquetados, acumulación, dropout, recómputo de activaciones, productos fusionados,
gradientes principales en fp64; medias, sumas y tokens contados; tres pérdidas auxiliares, la z-loss
y capacidades. La prueba da un paso y compara la pérdida, el gradiente de cada parámetro y la norma
del gradiente con los de un solo proceso en fp64. También compara el dropout: el proceso único junta
las máscaras de todos los ranks.

`make benchmark` sorteó {drawn} composiciones con {ranks} ranks, {different} de ellas distintas.
En las {exact} en que ningún experto puntúa con sigmoide, la mayor diferencia relativa fue
{worst:.0e}. En las demás fue {worst_fp32:.0e}: las puntuaciones del router están en fp32, como en
Megatron, y el último bit de la sigmoide fp32 de torch depende de la posición de un elemento en su
fila. Las pruebas vuelven a sortear las primeras composiciones. **De {drawn} composiciones
sorteadas, {wrong} dieron un paso distinto del de un solo proceso.**
""",
    },
}


def page(language: str) -> str:
    """Return the page in a language."""
    words, numbers, museum = WORDS[language], recorded(), load_museum()
    pins = {name: _pin(name) for name in ("megatron", "pytorch")}
    rows = [
        f"| [{room['meets'][language]}](#{room['name']}) "
        f"| {fill(room['short'][language], numbers[room['name']])} | {_status(room, language)[0]} |"
        for room in museum["room"]
    ]
    top = "\n".join([words["top"].format(**pins, seen=museum["threads"]["seen"]), *rows])
    rooms = [
        "\n".join(_lines(room, museum["threads"], numbers[room["name"]], language))
        for room in museum["room"]
    ]
    return "\n\n".join([top, *rooms, _drawn(language)])


def load_museum() -> dict[str, Any]:
    """Return the words and states of rooms.toml."""
    return tomllib.loads((LAB / "rooms.toml").read_text("utf-8"))


def _drawn(language: str) -> str:
    """Format the section about the property test."""
    result = json.loads(DRAWN.read_text("utf-8"))
    result["ranks"] = ", ".join(result["ranks"])
    return WORDS[language]["drawn"].format(worst_fp32=result["worst in fp32"], **result)


def fill(text: str, numbers: Numbers) -> str:
    """Replace the names of numbers in a sentence by the numbers."""
    return text.format(**numbers)


def _lines(
    room: dict[str, Any], threads: dict[str, Any], numbers: Numbers, language: str
) -> Iterator[str]:
    words = WORDS[language]
    model = words["model"] if room.get("minimal") else ""
    yield f'<a id="{room["name"]}"></a>\n\n## {room["title"][language]}\n'
    yield f"{model}{fill(room['seen'][language], numbers)}\n"
    yield f"- **{words['cause']}.** {room['cause'][language]}"
    links = ", ".join(_thread(name, threads["state"][name], words) for name in room["threads"])
    label = words["threads"].format(seen=threads["seen"]) if links else words["no threads"]
    yield f"- **{label}.** {links or words['none']}."
    status = "; ".join(_status(room, language))
    yield f"- **{words['status']}.** {status[0].upper()}{status[1:]}."
    yield f"- **{words['ours']}.** {room['ours'][language]}"


def _status(room: dict[str, Any], language: str) -> list[str]:
    """Return the parts of a room's status, the decisive one first."""
    words, parts = WORDS[language], []
    for key in ("fixed", "unfixed"):
        if key in room:
            parts.append(words[key].format(release=room[key]))
    if room.get("same_lines"):
        parts.append(words["same lines"])
    if "note" in room:
        parts.append(room["note"][language])
    return parts


def _thread(name: str, state: str, words: dict[str, str]) -> str:
    repository, _, number = name.partition("#")
    return f"[{name}](https://github.com/{repository}/issues/{number}) ({words[state]})"


def _pin(source: str) -> str:
    path: Path = LAB.parent / "35-reading-notes" / f"{source}-sha.txt"
    return path.read_text("utf-8").strip()


def main() -> None:
    """Write both pages."""
    for language, path in PAGES.items():
        path.write_text(page(language), "utf-8")


if __name__ == "__main__":
    main()
