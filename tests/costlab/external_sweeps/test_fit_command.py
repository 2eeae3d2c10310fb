"""`tools/bench fit FILE`: the lines fit the sweep, and extrapolations are marked as such."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from costlab.cli import bench
from costlab.external_sweeps.fitted import erred, fit, tried
from costlab.external_sweeps.rows import Measured, SweepKey
from tests.costlab.external_sweeps.sweep_files import LATENCY, PER_BYTE, SIZES, csv_of, nccl_text

FINE = [1 << power for power in range(10, 31)]


def straight(size: int) -> float:
    return LATENCY + PER_BYTE * size


def bent(size: int) -> float:
    """Return seconds with ten times the cost per byte from 16 MiB on, as after a cache's end."""
    knee = 16 << 20
    return straight(size) if size <= knee else straight(knee) + 10 * PER_BYTE * (size - knee)


def test_the_lines_are_those_of_the_sweep() -> None:
    fitted = fit(Measured(SweepKey(), FINE, [straight(size) for size in FINE]), ())
    (line,) = fitted.lines
    assert line.latency == pytest.approx(LATENCY) and line.bandwidth == pytest.approx(1 / PER_BYTE)
    assert fitted.residual == pytest.approx(0, abs=1e-9)


def test_a_straight_sweep_is_trusted_beyond_and_a_bent_one_is_not() -> None:
    for time, smallest_error, largest_error in ((straight, 0, 1e-6), (bent, 0.5, 1)):
        trials = tried(FINE, [time(size) for size in FINE])
        far = erred(trials, 64)
        assert far is not None and smallest_error <= far <= largest_error
    # From 16 MiB a bent sweep's GiB is predicted at a tenth.
    (seen,) = [trial for trial in trials if (trial.fitted, trial.size) == (16 << 20, 1 << 30)]
    assert seen.error == pytest.approx(straight(1 << 30) / bent(1 << 30) - 1)


def test_a_step_that_the_sweep_never_took_is_not_vouched_for() -> None:
    measured = Measured(SweepKey(), FINE, [bent(size) for size in FINE])
    just_above, between, far, under = fit(measured, (2 << 30, 3 << 20, 1 << 60, 64)).predictions
    assert just_above.extrapolation == 2 and just_above.error is not None
    assert just_above.seconds == pytest.approx(bent(2 << 30))
    assert between.extrapolation == 1 and between.seconds == pytest.approx(bent(3 << 20))
    assert far.error is None and under.error is None and under.extrapolation == 16


def test_five_sizes_are_fitted_and_nothing_is_said_of_what_lies_beyond() -> None:
    few = FINE[:5]
    fitted = fit(Measured(SweepKey(), few, [straight(size) for size in few]), (1 << 30,))
    assert fitted.unseen is None and fitted.trials == [] and fitted.predictions[0].error is None


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "sweep.txt"
    path.write_text(nccl_text())
    return path


def run_fit(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(bench, ["fit", *arguments], standalone_mode=False)
    fault = getattr(done.exception, "message", "") if done.exception else ""
    return done.return_value if done.exception is None else 2, done.output + fault


def test_what_is_printed_fits_a_terminal_and_warns_beyond(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("costlab.record.words.PIPED", 80)
    status, output = run_fit(str(log), "--at", "5M,1G,1024G")
    assert status == 0 and max(map(len, output.splitlines())) <= 80
    flat = " ".join(output.split())
    assert "all_reduce, 2 ranks, out-of-place: 10 sizes, 1 KiB to 256 MiB" in flat
    assert "30.0 µs 10.0 GB/s" in flat
    assert "5 MiB: 554 µs, between sizes measured" in flat
    assert "1 GiB: 107 ms, 4 times beyond what was measured: as far," in flat
    assert "nothing in this file says how wrong that is" in flat


def test_a_program_gets_an_object_a_sweep_and_a_figure_is_drawn(log: Path, tmp_path: Path) -> None:
    figure = tmp_path / "drawn.svg"
    done = CliRunner().invoke(
        bench, ["fit", str(log), "--output-format", "json", "--figure", str(figure)]
    )
    first, second = json.loads(done.stdout)
    assert first["name"] == "all_reduce, 2 ranks, out-of-place" and first["sizes"] == SIZES
    assert first["lines"][0]["latency"] == pytest.approx(LATENCY, rel=1e-3)
    assert second["name"].endswith("in-place")
    words = " ".join(ElementTree.parse(figure).getroot().itertext())
    assert "all_reduce, 2 ranks, in-place" in words and "256 MiB" in words


def test_too_few_sizes_and_no_file_are_said(tmp_path: Path) -> None:
    path = tmp_path / "few.csv"
    path.write_text("\n".join(csv_of().splitlines()[:3]) + "\n")
    status, output = run_fit(str(path))
    assert status == 2 and "few.csv" in output and "2 sizes; a line needs 3 or more" in output
    assert run_fit(str(tmp_path / "none.csv"))[0] == 2
