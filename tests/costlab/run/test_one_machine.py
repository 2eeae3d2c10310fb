"""On a machine with one GPU, measurements of two ranks run on the CPU, and every number says so."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest

from costlab.judge.claims_file import Case, Claim, Comparison
from costlab.judge.compare import compare
from costlab.judge.judge import judge, machine
from costlab.record import options
from costlab.record.options import Budget, Settings
from costlab.record.provenance import provenance
from costlab.record.result import Metric, Result, Section
from costlab.record.words import Words
from costlab.run import measuring
from costlab.run.progress import Plain
from costlab.run.run import Run
from costlab.sections import one_gpu, pipeline, tensor_parallel
from costlab.sections.fully_sharded import fully_sharded
from costlab.sections.plan import Plan

SETTINGS = Settings(device="cuda", ranks=1)
PROVENANCE: dict[str, Any] = {"processor": "a processor", "cores": 8, "gpus": ["a GPU"]}
SAID = Words("It is so.", "Es así.")
CPU, GPU = "a processor, 8 cores", "1 × a GPU"


@pytest.fixture
def single_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "gpus", lambda: 1)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)


def make_run() -> Run:
    return Run(SETTINGS, None, Plain(io.StringIO()), PROVENANCE)


@pytest.mark.usefixtures("single_gpu")
def test_what_needs_two_ranks_is_measured_on_the_cpu_and_one_gpu_on_the_gpu() -> None:
    worlds = make_run()._worlds
    assert worlds("fsdp", fully_sharded.PLAN) == worlds("tp", tensor_parallel.PLAN) == [("cpu", 2)]
    assert worlds("pipeline", pipeline.PLAN) == [("cpu", 2), ("cpu", 4)]
    assert worlds("one-gpu", one_gpu.PLAN) == [("cuda", 1)]


@pytest.mark.usefixtures("single_gpu")
def test_one_line_says_what_stands_on_the_cpu_and_why() -> None:
    line = measuring.alone(["tp", "fsdp", "one-gpu", "counts", "fit"], SETTINGS)
    assert "\n" not in line and "1 GPU:" in line
    assert "tp on 2 ranks, fsdp on 2 ranks measured on the CPU" in line
    assert "one-gpu" not in line and "counts" not in line
    assert measuring.alone(["one-gpu"], SETTINGS) == ""


def test_with_a_gpu_for_each_rank_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "gpus", lambda: 2)
    assert measuring.alone(["tp", "fsdp"], Settings(device="cuda", ranks=2)) == ""


def test_a_run_signs_each_number_with_the_device_that_it_measured_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def metrics(_: Any, settings: Settings, *__: Any) -> Iterator[Metric]:
        yield Metric(id=f"a.{settings.device}", value=1, unit="s")

    measured_run, section = make_run(), Section()
    monkeypatch.setattr(measured_run, "_metrics", metrics)
    measured_run._launches(section, Plan(), [("cuda", 1), ("cpu", 2)], Section(), Budget())
    assert {metric.id: metric.device for metric in section.metrics} == {
        "a.cuda": "cuda",
        "a.cpu": "cpu",
    }


def test_fsdp_never_shards_over_one_rank() -> None:
    assert [fully_sharded.PLAN.ranks(Settings(ranks=n)) for n in (1, 2, 4)] == [(2,), (2,), (4,)]


@pytest.mark.parametrize(
    ("devices", "names"),
    [((), GPU), (("cpu",), CPU), (("cuda",), GPU), (("cuda", "cpu"), f"{CPU}; {GPU}")],
)
def test_a_machine_is_named_by_the_devices_that_numbers_are_from(
    devices: tuple[str, ...], names: str
) -> None:
    assert machine(PROVENANCE, devices) == names


@pytest.mark.parametrize(("device", "name"), [("cpu", CPU), ("cuda", GPU)])
def test_a_verdict_on_times_of_the_cpu_is_not_signed_by_the_gpu(device: str, name: str) -> None:
    claim = Claim(
        number=1, id="one", words=SAID, where=SAID, case=(Case((Comparison(">", "a", 0.5),)),)
    )
    metric = Metric(id="a", value=1, unit="s", device=device)
    (verdict,) = judge([claim], {"a": metric}, PROVENANCE)
    assert verdict.evidence.endswith(f"on {name}")


def test_a_cpus_time_is_not_compared_with_a_gpus() -> None:
    def result(device: str) -> Result:
        single_process = Metric(id="tp.h64.step.shardlab.one", value=1, unit="s", device=device)
        same = Metric(id="tp.h64.step.shardlab.gloo", value=1, unit="s")
        return Result(sections={"tp": Section(metrics=[single_process, same])})

    assert compare(result("cpu"), result("cuda")).missing == {"tp": 1}
    assert compare(result("cpu"), result("cpu")).missing == {}


def test_a_cuda_runs_provenance_describes_the_cpu_that_stands_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("costlab.record.provenance._gpus", lambda: {"gpus": ["a GPU"]})
    facts = provenance(SETTINGS, [], ranks=None)
    assert facts["gpus"] == ["a GPU"] and facts["processor"] and facts["cores"] >= 1
    assert "cuda" in facts["device"] and "cpu" in facts["device"]
    assert "nccl" in facts["backend"] and "gloo" in facts["backend"]
    assert provenance(Settings(), [], ranks=None)["device"] == "cpu"
