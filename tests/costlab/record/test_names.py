"""Ids are made of fields and parsed back into them, by one grammar for all committed ids."""

from __future__ import annotations

import pytest

from costlab.publish.kernels_page import read
from costlab.publish.results_page import REFERENCE
from costlab.record.names import FIELDS, FORMS, Name, call, family_of, parse
from costlab.record.result import load
from costlab.sections.kernels import cases
from tests.costlab.tiny_run import LAB

COMMITTED = [
    *load(LAB / REFERENCE).metrics(),
    *(metric for case in cases().values() if case.published for metric in read(case).metrics()),
]


def test_every_committed_id_is_made_of_the_fields_that_it_is_read_into() -> None:
    assert len(COMMITTED) > 1000
    assert [parse(metric_id).id for metric_id in COMMITTED] == COMMITTED


def test_every_committed_id_has_one_form() -> None:
    for metric_id in COMMITTED:
        name = parse(metric_id)
        assert [form.written(name) for form in FORMS if form.holds(name)] == [metric_id]


@pytest.mark.parametrize(
    ("name", "metric_id"),
    [
        (Name("tp", "speedup", hidden=128, code="shardlab", link="gloo"),
         "tp.h128.speedup.shardlab.gloo"),
        (Name("tp", "speedup", hidden=128, code="shardlab", link="gloo", ranks=4),
         "tp.h128.speedup.shardlab.gloo.tp4"),
        (Name("tp", "crossover", of="exists", code="shardlab", link="gloo", ranks=4),
         "tp.crossover.shardlab.gloo.exists.tp4"),
        (Name("fsdp", "silent", hidden=64, code="shardlab"), "fsdp.h64.silent.shardlab"),
        (Name("fsdp", "peak", of="formula", hidden=64), "fsdp.h64.peak.formula"),
        (Name("gpu", "modelled-allreduce", of="nvlink4", hidden=1024, ranks=2),
         "gpu.h1024.tp2.modelled-allreduce.nvlink4"),
        (call("gloo", "all_reduce", 2, 1024, "blocking"),
         "collective.gloo.all_reduce.n2.1024.blocking"),
        (Name("kernels", "step", case="crowded", row="64", code="torch-batch", link="gloo"),
         "kernels.crowded.64.step.torch-batch.gloo"),
        (Name("kernels", "ratio", case="crowded", row="64", code="shardlab", over="torch"),
         "kernels.crowded.64.ratio.shardlab.torch"),
    ],
)  # fmt: skip
def test_a_name_and_its_id_say_the_same(name: Name, metric_id: str) -> None:
    assert name.id == metric_id
    assert parse(metric_id) == name


@pytest.mark.parametrize(
    "name",
    [
        Name("tp", "speedup", hidden=128, code="shardlab"),  # over which link?
        Name("tp", "share", of="matmul", hidden=128, code="shardlab", link="gloo", size=8),
        Name("fsdp", "peak", of="guess", hidden=64),
        Name("tq", "step"),
    ],
)
def test_fields_that_no_form_has_are_refused_by_name(name: Name) -> None:
    with pytest.raises(ValueError, match=r"no form in names\.FORMS .*'topic'") as fault:
        print(name.id)
    assert "\n" not in str(fault.value)


def test_a_name_fits_where_each_field_is_one_of_those_wanted() -> None:
    name = parse("fsdp.h64.ratio.shardlab.torch-ddp.gloo")
    assert name.fits({"topic": "fsdp", "what": ("ratio", "step"), "over": "torch-ddp"})
    assert not name.fits({"topic": "fsdp", "what": "ratio", "over": ""})
    assert name.fits({})


def test_every_field_stands_in_a_form() -> None:
    written = {
        field for metric_id in COMMITTED for field in FIELDS if getattr(parse(metric_id), field)
    }
    assert written | {"dtype"} == set(FIELDS)  # a GPU's products have a dtype


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("collective.gloo.all_reduce.n2.1024.blocking", "collective.gloo.all_reduce.n2.*.blocking"),
        ("tp.h128.step.shardlab.one", "tp.h*.step.shardlab.one"),
        ("pipeline.1f1b.p2.m8.bubble.shardlab.gloo", "pipeline.1f1b.p2.m*.bubble.shardlab.gloo"),
        ("tp.h64.speedup.shardlab.gloo.tp4", "tp.h*.speedup.shardlab.gloo.tp4"),
        ("fit.gloo.all_reduce.n2.latency", "fit.gloo.all_reduce.n2.latency"),
    ],
)
def test_a_family_is_what_is_measured_alike_at_several_sizes(name: str, family: str) -> None:
    assert family_of(name) == family
