"""The command line: accepted values, refusals and exit codes, without measuring anything."""

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import click
import pytest
from click.testing import CliRunner

from costlab import cli
from costlab.record import noise, options
from costlab.record.result import Load, Result, Section, save
from costlab.run.run import Run
from costlab.sections import plan
from tests.running import run_program

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else the machine of the tests does, nothing is said of it."""
    monkeypatch.setattr(noise, "watch_others", lambda: noise.OtherPrograms(0.0, []))


def run_command(*words: str) -> SimpleNamespace:
    """Run the command line in this process, which has imported what it imports."""
    output, errors = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["bench", *words]),
        redirect_stdout(output),
        redirect_stderr(errors),
        pytest.raises(SystemExit) as end,
    ):
        cli.main()
    return SimpleNamespace(
        returncode=end.value.code, stdout=output.getvalue(), stderr=errors.getvalue()
    )


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("1K:4K", (1024, 2048, 4096)),
        ("1KiB:3k", (1024, 2048, 3072)),
        ("64:64", (64,)),
        ("1M,64,1K", (64, 1024, 1 << 20)),
        ("1G", (1 << 30,)),
    ],
)
def test_sizes_are_ranges_in_powers_of_two_or_lists(text: str, read: tuple[int, ...]) -> None:
    assert options.Sizes().convert(text, None, None) == read


@pytest.mark.parametrize("text", ["", "0", "4K:1K", "1:2:3", "1T", "many", "1K:", "-1"])
def test_what_is_no_range_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write"):
        options.Sizes().convert(text, None, None)


def test_two_runs_of_one_second_have_a_file_each(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
    times = iter([moment, moment.replace(microsecond=1), moment.replace(second=1)])
    monkeypatch.setattr(options, "datetime", SimpleNamespace(now=lambda _: next(times)))
    files = [options.new_file() for _ in range(3)]
    assert len(set(files)) == 3
    assert files == sorted(files)  # the newest is the last


def test_help_imports_no_torch() -> None:
    code = (
        "import sys; sys.argv = ['bench', '--help']\n"
        "from costlab.cli import main\n"
        "try: main()\n"
        "finally: print('torch' in sys.modules, 'rich' in sys.modules)"
    )
    done = run_program([sys.executable, "-c", code], check=True)
    assert "collectives" in done.stdout
    assert done.stdout.endswith("False False\n")


def test_without_a_command_the_whole_lab_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[list[str], bool, object]] = []

    def measure(names: list[str], *, whole: bool, **options: object) -> int:
        calls.append((names, whole, options["profile"]))
        return 0

    monkeypatch.setattr(cli, "_measure", measure)
    for words in ([], ["--profile", "full"], ["all"], ["tp"], ["collectives"]):
        assert CliRunner().invoke(cli.bench, words).exit_code == 0
    whole = list(plan.MODULES)
    assert calls == [
        (whole, True, "quick"),
        (whole, True, "full"),
        (whole, True, "quick"),
        (["tp"], False, "quick"),
        (["collectives", "fit"], False, "quick"),
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"], ["--profile", "slow"], ["--ranks", "0"], ["tp", "--hidden", "x"],
        ["compare", "a"], ["--minutes", "0"],
    ],
)  # fmt: skip
def test_misuse_is_status_2_and_one_line(words: list[str]) -> None:
    done = run_command(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_a_gpu_that_is_not_there_is_misuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    done = run_command("collectives", "--device", "cuda")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--device cuda" in done.stderr


def test_a_result_that_is_cut_short_is_one_line_and_status_1(tmp_path: Path) -> None:
    save(Result(provenance={"cores": 2}), tmp_path / "one.json")
    (tmp_path / "short.json").write_bytes((tmp_path / "one.json").read_bytes()[:-9])
    for words in (
        ["compare", "one.json", "short.json"],
        ["report", "short.json"],
        ["claims", "short.json"],
    ):
        done = run_command(*[str(tmp_path / w) if w.endswith("json") else w for w in words])
        assert (done.returncode, done.stdout) == (1, "")
        assert "short.json is not a result" in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_place_that_can_not_be_written_is_found_out_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_command("counts", "--out", str(tmp_path / "file" / "one.json"))
    assert done.returncode == 1
    assert "can't be written" in done.stderr
    assert done.stderr.count("\n") == 1


def test_more_ranks_than_cores_are_said_before_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "measure", lambda *_, **__: None)
    words = ["collectives", "--ranks", "900", "--out", str(tmp_path / "one.json")]
    done = CliRunner().invoke(cli.bench, words)
    assert done.exit_code == 0
    assert "note: 900 ranks on" in done.output  # standard error too, under any click


def test_a_busy_machine_is_the_first_line_and_its_time_is_the_budgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Run] = []
    others = noise.OtherPrograms(0.87, [("chrome", 0.5), ("cc1plus", 0.3)])
    monkeypatch.setattr(noise, "watch_others", lambda: others)
    monkeypatch.setattr(Run, "measure", lambda run, *_, **__: runs.append(run))
    path = tmp_path / "one.json"
    for words in ([], ["--profile", "full"], ["--minutes", "3"]):
        done = CliRunner().invoke(cli.bench, ["pipeline", "--out", str(path), *words])
        assert done.output.startswith(
            "note: this machine is busy: other programs use 87% of its cores (chrome 50%, "
            "cc1plus 30%)"
        )
    assert [run.result.settings["minutes"] for run in runs] == [10, 40, 3]
    save(runs[-1].result, path)
    CliRunner().invoke(cli.bench, ["--resume", str(path), "--minutes", "20"])
    assert runs[-1].result.settings["minutes"] == 20
    monkeypatch.setattr(noise, "watch_others", lambda: noise.OtherPrograms(0.05, []))
    done = CliRunner().invoke(cli.bench, ["pipeline", "--out", str(path)])
    assert "this machine is busy" not in done.output


def test_a_run_that_was_cut_short_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(run: Run, *_: object, **__: object) -> None:
        run.result.sections["pipeline"] = Section(status="cut", load=Load(missing_rounds=1))

    monkeypatch.setattr(Run, "measure", measure)
    path = tmp_path / "one.json"
    done = CliRunner().invoke(cli.bench, ["pipeline", "--out", str(path)])
    assert done.exit_code == 0
    assert f"`tools/bench --resume {path}` measures the rest" in done.output


def test_tools_bench_says_what_is_missing_where_another_interpreter_has_not_all(
    tmp_path: Path,
) -> None:
    """As under torchrun of another environment: that interpreter is used, or refused in a line."""
    done = run_program(
        [sys.executable, "-S", "-E", str(ROOT / "tools" / "bench"), "--help"],
        env={"RANK": "0", "PATH": os.environ["PATH"]},
    )
    assert done.returncode == 1
    assert "make bench-env" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [[], *([name] for name in sorted(cli.bench.commands))])
def test_no_help_is_cut_short_in_a_terminal_of_80_columns(command: list[str]) -> None:
    outcome = CliRunner().invoke(cli.bench, [*command, "--help"], terminal_width=80)
    assert outcome.exit_code == 0
    lines = [line for line in outcome.output.splitlines() if not line.startswith("Usage: ")]
    assert lines
    assert not [line for line in lines if "..." in line or len(line) > 80]
