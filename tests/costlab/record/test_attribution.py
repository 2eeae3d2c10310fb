"""Every id, every row and every page that quotes a number names whose number it is."""

from __future__ import annotations

import re

import pytest

from costlab.publish import page, results_page
from costlab.record.quantity import Attribution, attribute
from costlab.record.result import Metric, load
from costlab.record.statistics import over_launches
from tests.costlab.tiny_run import LAB, ROOT

REFERENCE = load(LAB / results_page.REFERENCE).metrics()
# What a page must say in the paragraph that quotes a number, where the number is such code's.
NAMES = {
    "shardlab": "shardlab|mini-FSDP",
    "megatron-core": "Megatron|megatron-core",
    "torch": "PyTorch|torch",
    "torch-ddp": "DDP",
    "torch-fsdp1": "FSDP1",
    "torch-fsdp2": "FSDP2",
    "torch-dtensor": "DTensor",
    "torch-pipelining": r"torch\.distributed\.pipelining",
}
_LINK = re.compile(r"\[[^\[\]]*\]\([^()\s]*RESULTS(?:\.\w+)?\.md#([\w.-]+)\)")


def metric(name: str, device: str = "cpu") -> Metric:
    return Metric(id=name, value=1.0, unit="s", device=device)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fsdp.h128.step.torch-fsdp1.gloo", ("torch-fsdp1", "gloo", "CPU")),
        ("fsdp.h128.ratio.shardlab.torch-ddp.gloo", ("shardlab / torch-ddp", "gloo", "CPU")),
        ("tp.h128.speedup.shardlab.shared-memory.tp4", ("shardlab", "shared-memory", "CPU")),
        ("tp.h64.step.shardlab.one-all-cores", ("shardlab", "", "CPU")),
        ("tp.h64.sweep.volume.shardlab.gloo", ("torch", "gloo", "CPU")),
        ("collective.gloo.all_reduce.n2.1024.blocking", ("torch", "gloo", "CPU")),
        ("fit.shared-memory.all_reduce.n2.latency", ("shardlab", "shared-memory", "CPU")),
        ("gpu.h1024.tp2.bf16.efficiency", ("torch", "", "CPU")),
        ("count.wire.gloo.n2.halves", ("", "", "")),
    ],
)
def test_an_id_says_whose_code_and_which_link(name: str, expected: tuple[str, str, str]) -> None:
    assert attribute(metric(name)) == Attribution(*expected)


def test_every_measured_number_of_the_reference_has_an_owner_and_a_device() -> None:
    measured = [metric for metric in REFERENCE.values() if metric.how == "measured"]
    measured = [metric for metric in measured if not metric.id.startswith("timeline.")]
    assert len(measured) > 300
    for metric in measured:
        if not metric.id.startswith("count."):
            code, link, device = attribute(metric)
            assert set(code.split(" / ")) <= NAMES.keys(), metric.id
            alone = ".one" in metric.id or ".silent." in metric.id or ".speedup-of-" in metric.id
            assert bool(link) != alone and device == "CPU", metric.id


def find_quotes() -> list[tuple[str, str, str]]:
    """Return each paragraph of the workbook's pages that quotes a row: page, paragraph, row."""
    quotes = []
    for folder in ("docs", "experiments", "solutions"):
        for path in sorted((ROOT / folder).rglob("*.md")):
            if path.parent == LAB or "rules" in path.parts or path.name.startswith("notes."):
                continue  # generated, or examples of the grammar
            for paragraph in path.read_text("utf-8").split("\n\n"):
                name = str(path.relative_to(ROOT))
                quotes += [(name, paragraph, row) for row in _LINK.findall(paragraph)]
    return quotes


def test_a_paragraph_that_quotes_a_number_names_whose_it_is() -> None:
    rows = {page.row_of(name): metric for name, metric in REFERENCE.items()}
    quotes = find_quotes()
    assert len(quotes) > 60
    for where, paragraph, row in quotes:
        prose = _LINK.sub("", paragraph)
        code = attribute(rows[row]).code
        for part in code.split(" / ") if code else []:
            assert re.search(NAMES[part], prose), f"{where} quotes {row}: whose it is, isn't said"


def test_the_note_on_pytorchs_fsdp_quotes_pytorchs_fsdp() -> None:
    note = "35-reading-notes/fsdp-prefetch"
    rows = [row for where, _, row in find_quotes() if note in where]
    assert len(rows) >= 2
    assert all("torch-fsdp1" in row and "shardlab" not in row for row in rows)


def test_what_several_launches_measured_stays_on_its_device() -> None:
    launches = [metric("tp.h64.step.shardlab.gloo", "cuda") for _ in range(3)]
    assert over_launches(launches).device == "cuda"


def test_what_a_model_says_was_measured_on_no_device() -> None:
    modelled = Metric(id="gpu.h1024.tp2.modelled-allreduce.nvlink4", value=1, unit="s",
                      how="modelled")  # fmt: skip
    assert modelled.on("cuda").device == ""
    assert metric("a", "").on("cuda").device == "cuda"
