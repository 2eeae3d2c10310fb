"""A results file is complete or absent, and a file that is no result is refused in one line."""

import os
from pathlib import Path

import msgspec
import numpy as np
import pytest

from costlab.record.result import SCHEMA, Metric, Result, ResultError, Section, load, save


def make_result() -> Result:
    metric = Metric(
        id="tp.h128.step.shardlab.one", value=0.01, unit="s", low=0.009, high=0.012, samples=7
    )
    return Result(
        provenance={"cores": 2},
        sections={"tp": Section(status="complete", metrics=[metric])},
    )


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    save(make_result(), tmp_path / "deep" / "one.json")
    assert load(tmp_path / "deep" / "one.json") == make_result()
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["one.json"]


@pytest.mark.parametrize("keep", [0, 1, 40, -30, -2])
def test_a_file_cut_short_is_refused_in_one_line(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "one.json"
    save(make_result(), path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ResultError) as fault:
        load(path)
    assert str(path) in str(fault.value)
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": 7}, "schema 7"),
        ({"what": "pair", "cases": []}, "unknown field `what`"),
        ({"sections": {"a": {"metrics": [{"id": "x", "value": "fast", "unit": "s"}]}}}, "float"),
    ],
)
def test_another_files_schema_is_refused(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    path = tmp_path / "one.json"
    path.write_bytes(msgspec.json.encode(msgspec.to_builtins(make_result()) | change))
    with pytest.raises(ResultError, match=words):
        load(path)


def test_a_metric_that_stands_twice_is_refused(tmp_path: Path) -> None:
    result = make_result()
    result.sections["again"] = result.sections["tp"]
    save(result, tmp_path / "one.json")
    with pytest.raises(ResultError, match="twice"):
        load(tmp_path / "one.json")


def test_a_full_disk_leaves_the_older_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "one.json"
    save(make_result(), path)

    def full(_: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResultError, match="No space left on device") as fault:
        save(Result(), path)
    assert "\n" not in str(fault.value)
    assert load(path) == make_result()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("low", "high"), [(1.1, 2.0), (0.5, 0.9), (None, 2.0), (0.5, None), (float("nan"), 2.0)]
)
def test_a_value_outside_its_own_spread_is_refused(low: float | None, high: float | None) -> None:
    with pytest.raises(ValueError, match=r"tp\.step is 1, which its own spread, .* does not hold"):
        Metric(id="tp.step", value=1.0, unit="s", low=low, high=high)


def test_a_file_whose_value_lies_outside_its_spread_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    metric = {"id": "tp.step", "value": 1.0, "unit": "s", "low": 1.1, "high": 2.0}
    sections = {"tp": {"metrics": [metric]}}
    path.write_bytes(msgspec.json.encode({"schema": SCHEMA, "sections": sections}))
    with pytest.raises(ResultError, match="does not hold"):
        load(path)


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_who_may_read_a_result_the_umask_says(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        save(make_result(), tmp_path / "one.json")
    finally:
        os.umask(before)
    assert (tmp_path / "one.json").stat().st_mode & 0o777 == mode


def test_numbers_of_numpy_and_torch_are_written_as_numbers(tmp_path: Path) -> None:
    metric = Metric(id="a", value=np.float64(0.5), unit="s", samples=np.int64(3))
    save(Result(sections={"a": Section(metrics=[metric])}), tmp_path / "one.json")
    read = load(tmp_path / "one.json").metrics()["a"]
    assert (read.value, read.samples) == (0.5, 3)
