"""What a run is asked for: its settings and its budget of time, and the command line's options.

`Settings` go to every rank. The options read ranges of sizes, the device, and where the result
goes.
"""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec
from msgspec import json


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """One run's settings, as the command line gives them; sent to every rank.

    Args:
        profile: "quick" (the whole lab within five minutes on two cores) or "full".
        ranks: how many ranks measure what any number of ranks can.
        sizes: bytes of a collective's payload, ascending.
        hidden: hidden sizes of the tensor-parallel step, ascending.
        device: "cpu" or "cuda" ("auto" is settled before).
        seed: of every random order and input.
        minutes: the run's budget; 0 for none.
        seconds: a launch's share of the budget; 0 for none, and in the settings of a run.
        launch: which of a section's launches this is, from 0; a run's own is 0.
        sections: those that were asked for, in order.
    """

    profile: str = "quick"
    ranks: int = 2
    sizes: tuple[int, ...] = ()
    hidden: tuple[int, ...] = ()
    device: str = "cpu"
    seed: int = 35
    minutes: float = 0.0
    seconds: float = 0.0
    launch: int = 0
    sections: tuple[str, ...] = ()


@dataclass(frozen=True)
class Budget:
    """Time that is shared out over parts, one after another: what a part leaves, the next have.

    Args:
        until: the moment of this process's `time.perf_counter()` at which it is spent.
    """

    until: float = math.inf

    @classmethod
    def of(cls, seconds: float) -> Budget:
        """Return a budget that begins now; 0 seconds are no limit."""
        return cls(time.perf_counter() + seconds if seconds else math.inf)

    @property
    def remaining(self) -> float:
        """Seconds that are left; none below 0."""
        return max(0.0, self.until - time.perf_counter())

    def share(self, fraction: float) -> Budget:
        """Return the next part's budget, a fraction of the time that is left."""
        if math.isinf(self.until):
            return self
        return Budget(time.perf_counter() + self.remaining * fraction)


ROOT = Path(__file__).parents[3]
LAB = ROOT / "experiments" / "35-allreduce-costs"
LOCAL = LAB / "results" / "local"
REFERENCE = LAB / "results" / "reference.json"
SEED = click.option("--seed", type=int, default=35, show_default=True)
OUT = click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Where the result goes.",
)  # fmt: skip
RESUME = click.option(
    "--resume", type=click.Path(path_type=Path, dir_okay=False, exists=True), metavar="FILE",
    help="Go on with a run that broke off, by its own settings.",
)  # fmt: skip
FORMAT = click.option(
    "--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True
)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"(\d+)\s*([KMG]?)(?:i?B)?", re.IGNORECASE)


class Sizes(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on only
    """A range in powers of two, "1K:64M", or a list, "1K,4K,1M"; K, M and G are 1024s."""

    name = "range"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the numbers, ascending."""
        if isinstance(value, tuple):
            return value
        words = str(value).split(":" if ":" in str(value) else ",")
        numbers = [self._number(word, str(value)) for word in words]
        if ":" in str(value):
            if len(numbers) != 2 or numbers[0] > numbers[1]:
                self.fail(f"{value!r} is no range; write LEAST:MOST, as in 1K:64M")
            return tuple(doubled(*numbers))
        return tuple(sorted(set(numbers)))

    def _number(self, word: str, whole: str) -> int:
        match = _SIZE.fullmatch(word.strip())
        if not match or int(match[1]) == 0:
            self.fail(f"{word!r} in {whole!r} is no number above 0; write 64, 1K, 16M or 1G")
        return int(match[1]) * _UNITS[match[2].upper()]


def doubled(least: int, largest: int) -> list[int]:
    """Return least, twice that … up to `most`, which is always among them."""
    numbers = [least]
    while numbers[-1] * 2 <= largest:
        numbers.append(numbers[-1] * 2)
    return numbers if numbers[-1] == largest else [*numbers, largest]


def device(wanted: str) -> str:
    """Return "cpu" or "cuda"; torch is imported only where a driver is there.

    Raises:
        click.UsageError: CUDA was asked for and isn't to be had.
    """
    if wanted == "cpu" or (wanted == "auto" and not Path("/dev/nvidiactl").exists()):
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if wanted == "cuda":
        raise click.UsageError("--device cuda: torch finds no GPU that it can use")
    return "cpu"


def gpus() -> int:
    """Return how many GPUs torch finds."""
    import torch

    return torch.cuda.device_count()


def write_json(data: object) -> None:
    """Print data as `--output-format json` has it."""
    click.echo(json.format(json.encode(data), indent=1).decode())


def new_file(folder: Path = LOCAL) -> Path:
    """Return a file for a result that starts now, in a folder that git ignores.

    To the microsecond: two runs that are started by one command line have a file each.
    """
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H%M%S.%fZ")
    return folder / f"{stamp}.json"


def newest() -> Path | None:
    """Return this machine's last result, or the committed reference, or None."""
    files = sorted(LOCAL.glob("*.json"))
    if files:
        return files[-1]
    return REFERENCE if REFERENCE.exists() else None


def pages() -> list[Path]:
    """Return the workbook's own pages, which may quote a result."""
    folders = (ROOT / folder for folder in ("docs", "experiments", "solutions"))
    return sorted(path for folder in folders for path in folder.rglob("*.md"))


def relative(path: Path) -> str:
    """Return a path as short as it can be typed from here."""
    whole, here = path.resolve(), Path.cwd()
    return str(whole.relative_to(here) if whole.is_relative_to(here) else path)
