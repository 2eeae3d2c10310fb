"""The museum's pages, made from what its rooms showed and from what rooms.toml says of them.

    python -m tests.shardlab.compositions.pages         writes both pages

`record`, beside this, runs the rooms first.
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

Each kind of parallelism is right by itself; gradients go wrong where two of them meet, and nothing
says so: the loss falls, AdamW hides a factor, a cluster is too dear to compare with one process.
Every room here is such a fault, seen on a CPU in seconds: megatron-core 0.16.1 and torch 2.13
themselves on one or two ranks over gloo, or, where the source needs a GPU, a minimal model of the
fault, which then says so. Each number was seen by the room's test in `tests/shardlab/compositions`,
which fails when it changes. In the last seven nothing is trained: a corpus meets whoever reads it
([theory 7](../../docs/theory/07-from-bin-idx-to-a-batch.md)).

| where they meet | seen | mended |
|---|---|---|""",
        "seen": "Seen",
        "model": "**A minimal model, not the source.** ",
        "cause": "Cause",
        "threads": "Upstream",
        "none": "no thread that we found",
        "mended": "Mended",
        "ours": "Here",
        "drawn": """\
<a id="ourselves"></a>

## Turned on ourselves

The same is asked of this workbook's kernels. A property test draws a composition of what they
offer: tensor, sequence, context, expert, pipeline (four schedules), data and fully sharded
parallelism; tied and frozen parameters, packed documents, accumulation, dropout, recomputation,
fused products, fp64 main gradients, means, sums and counted tokens, three auxiliary losses and the
z-loss, capacities. It takes a step and compares the loss, the gradient of every parameter and the
norm with those of one process in fp64. Dropout is compared too: the one process puts the masks of
all ranks side by side.

`make benchmark` drew {drawn}, {different} of them different, on {few} ranks: {wrong} were off. In
the {exact} in which no expert scores by sigmoid the largest relative difference was {worst:.0e};
in the others {fp32:.0e}: the router's scores are in fp32, as Megatron's, and the last bit of
torch's fp32 sigmoid depends on where in its row an element lies. The tests draw the first few
again.
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

Cada tipo de paralelismo es correcto por sí solo; los gradientes se estropean donde se juntan dos, y
nada lo dice: la pérdida baja, AdamW tapa un factor y un clúster es demasiado caro para compararlo
con un solo proceso. Cada sala de aquí es uno de esos fallos, visto en una CPU en segundos:
los propios megatron-core 0.16.1 y torch 2.13, con uno o dos ranks sobre gloo, o, donde la fuente
necesita una GPU, un modelo mínimo del fallo, que entonces lo dice. Cada número lo vio la prueba de
la sala, en `tests/shardlab/compositions`, que falla si cambia. En las siete últimas no se entrena
nada: un corpus se junta con quien lo lee
([teoría 7](../../docs/theory/07-from-bin-idx-to-a-batch.es.md)).

| dónde se juntan | visto | corregido |
|---|---|---|""",
        "seen": "Visto",
        "model": "**Un modelo mínimo, no la fuente.** ",
        "cause": "Causa",
        "threads": "En origen",
        "none": "ningún hilo que hayamos encontrado",
        "mended": "Corregido",
        "ours": "Aquí",
        "drawn": """\
<a id="ourselves"></a>

## Contra nosotros mismos

Lo mismo se les pide a los núcleos de este cuaderno. Una prueba de propiedades sortea una
composición de lo que ofrecen: paralelismo tensorial, de secuencia, de contexto, de expertos, de
pipeline (cuatro calendarios), de datos y totalmente fragmentado; parámetros atados y congelados,
documentos empaquetados, acumulación, dropout, recómputo, productos fusionados, gradientes
principales en fp64, medias, sumas y tokens contados, tres pérdidas auxiliares y la z-loss,
capacidades. Da un paso y compara la pérdida, el gradiente de cada parámetro y la norma con los de
un solo proceso en fp64. También se compara el dropout: el proceso único junta las máscaras de todos
los ranks.

`make benchmark` sorteó {drawn}, de ellas {different} distintas, con {few} ranks: {wrong} se
desviaban. En las {exact} en que ningún experto puntúa con sigmoide la mayor diferencia relativa
fue {worst:.0e}; en las demás, {fp32:.0e}: las puntuaciones del router están en fp32, como las de
Megatron, y el último bit de la sigmoide fp32 de torch depende de en qué lugar de su fila esté un
elemento. Las pruebas vuelven a sortear las primeras.
""",
    },
}


def page(language: str) -> str:
    """Return the page in a language."""
    words, seen = WORDS[language], recorded()
    rooms = tomllib.loads((LAB / "rooms.toml").read_text("utf-8"))["room"]
    pins = {name: _pin(name) for name in ("megatron", "pytorch")}
    rows = [
        f"| [{room['meets'][language]}](#{room['name']}) "
        f"| {fill_in_numbers(room['short'][language], seen[room['name']])} "
        f"| {room['mended'][language]} |"
        for room in rooms
    ]
    top = "\n".join([words["top"].format(**pins), *rows])
    sections = [_room(room, seen[room["name"]], language) for room in rooms]
    return "\n\n".join([top, *sections, _drawn(language)])


def _drawn(language: str) -> str:
    """What the property test saw."""
    seen = json.loads(DRAWN.read_text("utf-8"))
    few = ", ".join(seen["ranks"])
    return WORDS[language]["drawn"].format(few=few, fp32=seen["worst in fp32"], **seen)


def fill_in_numbers(text: str, numbers: Numbers) -> str:
    """Return `text` with each {name} replaced by its number."""
    return text.format(**numbers)


def _room(room: dict[str, Any], numbers: Numbers, language: str) -> str:
    return "\n".join(_lines(room, numbers, language))


def _lines(room: dict[str, Any], numbers: Numbers, language: str) -> Iterator[str]:
    words = WORDS[language]
    model = words["model"] if room.get("minimal") else ""
    yield f'<a id="{room["name"]}"></a>\n\n## {room["title"][language]}\n'
    yield f"{model}{fill_in_numbers(room['seen'][language], numbers)}\n"
    yield f"- **{words['cause']}.** {room['cause'][language]}"
    threads = ", ".join(_thread(name) for name in room["threads"]) or words["none"]
    yield f"- **{words['threads']}.** {threads}."
    yield f"- **{words['mended']}.** {room['mended'][language]}."
    yield f"- **{words['ours']}.** {room['ours'][language]}"


def _thread(name: str) -> str:
    repository, _, number = name.partition("#")
    return f"[{name}](https://github.com/{repository}/issues/{number})"


def _pin(source: str) -> str:
    place: Path = LAB.parent / "35-reading-notes" / f"{source}-sha.txt"
    return place.read_text("utf-8").strip()


def main() -> None:
    """Write both pages."""
    for language, place in PAGES.items():
        place.write_text(page(language), "utf-8")


if __name__ == "__main__":
    main()
