"""Lab 06: says whether the two functions of faulty.py are right: `python grade_faulty.py`.

The mask is compared with the causal mask of the whole sequence. The loss runs on four processes,
and the mean of their gradients is compared with the gradient of one process, in fp64.
"""

from __future__ import annotations

import multiprocessing
import queue
import runpy
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

try:
    import torch
    import torch.distributed as dist
    from torch import Tensor

    from shardlab.comm import World
    from shardlab.context import zigzag
except ModuleNotFoundError as missing:
    sys.exit(
        f"grade_faulty.py: error: this Python has no {missing.name}: run `make bench-env` once, "
        "and `source .venv/bin/activate` in every terminal"
    )

FILE = Path(__file__).with_name("faulty.py")
RANKS = 4
PATIENCE = 30.0  # seconds for the other ranks, once one has answered
UNKNOWN = "That is none of the usual mistakes."


def load(path: Path) -> SimpleNamespace:
    """Run the learner's file, and return what it defines."""
    return SimpleNamespace(**runpy.run_path(str(path)))


def locate(error: BaseException) -> str:
    """Return an exception in a line, with the line of code that raised it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    message = str(error).partition("\n")[0]
    return f"{Path(frame.filename).name}:{frame.lineno}: {type(error).__name__}: {message}"


def find_fault_of_form(name: str, value: Any, shape: list[int]) -> str:
    """Return what is wrong with the type or shape of a result, or an empty string."""
    if value is None:
        return f"{name} returns nothing: its last line needs a `return`."
    if not isinstance(value, Tensor):
        return f"expected a tensor, found {type(value).__name__}."
    if [*value.shape] != shape:
        return f"expected shape {shape}, found {[*value.shape]}."
    return ""


# ---------------------------------------------------------------------- the mask


def arrange(early: int, late: int, share: int) -> Tensor:
    """Return the positions of two chunks, of half a share each."""
    half = torch.arange(share // 2)
    return torch.cat([early * len(half) + half, late * len(half) + half])


def flip_late(positions: Tensor) -> Tensor:
    """Return positions whose second half is mirrored."""
    half = len(positions) // 2
    return torch.cat([positions[:half], positions[half:].flip(0)])


# Positions of a rank's tokens: the right ones, and those that usual mistakes give, by their cause.
# r: the rank, s: its tokens, n: the ranks.
RIGHT: Callable[[int, int, int], Tensor] = lambda r, s, n: zigzag.positions(s * n, r, n)  # noqa: E731
POSITIONS: dict[str, Callable[[int, int, int], Tensor]] = {
    "It takes a rank's tokens for a run that begins at rank · share. After the zig-zag cut rank r "
    "has chunks r and 2n − 1 − r.": lambda r, s, n: r * s + torch.arange(s),
    "It takes an index in the share for a position.": lambda r, s, n: torch.arange(s),
    "The late chunk of rank r is 2n − 1 − r, not n + r.": lambda r, s, n: arrange(r, n + r, s),
    "The late chunk of rank r is 2n − 1 − r, not n − 1 − r: there are 2n chunks, of s/2 tokens.":
        lambda r, s, n: arrange(r, n - 1 - r, s),
    "A rank's early chunk comes first in its share.":
        lambda r, s, n: arrange(2 * n - 1 - r, r, s),
    "Inside the late chunk the tokens keep their order.": lambda r, s, n: flip_late(RIGHT(r, s, n)),
    "A rank has two chunks of s/2 tokens, and here tokens were dealt out one at a time.":
        lambda r, s, n: torch.arange(s) * n + r,
    "It compares chunks only. Inside one chunk, compare tokens.":
        lambda r, s, n: RIGHT(r, s, n) // (s // 2),
}  # fmt: skip
# Masks that usual mistakes make from the right positions of queries q [s, 1] and keys k [1, s].
MASKS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "A query attends to its own key too: >=, not >.": lambda q, k: q > k,
    "A query attends to the keys up to its own position, not from there on.": lambda q, k: q <= k,
    "`rank` has the queries, in rows, and `owner` has the keys, in columns.":
        lambda q, k: k.T >= q.T,
    "Nothing is masked.": lambda q, k: (q >= k) | True,
    "Other ranks have keys of the future too: mask them.":
        lambda q, k: (q >= k) | ((q != k).all()),
    "Other ranks have keys of the past too.": lambda q, k: (q >= k) & (q[0] == k[0, 0]),
    "A later rank has keys of the past too, for the late chunk of queries.":
        lambda q, k: (q >= k) & (q[0] >= k[0, 0]),
}  # fmt: skip


def judge_visible(visible: Callable[[int, int, int, int], Any]) -> str:
    """Return "right", or what is wrong with a mask and what it comes from."""
    for s, n in ((8, 4), (4, 2), (6, 1)):
        masks = {(r, o): visible(r, o, s, n) for r in range(n) for o in range(n)}
        for (r, o), mask in masks.items():
            where = f"rank {r}, keys of rank {o}, share {s}, {n} ranks"
            if fault := find_fault_of_form("visible", mask, [s, s]):
                return f"{where}: {fault}"
            if mask.dtype != torch.bool:
                return f"{where}: expected bool, True where a query attends, found {mask.dtype}."
        for (r, o), mask in masks.items():
            queries, keys = RIGHT(r, s, n), RIGHT(o, s, n)
            wrong = (mask != (queries.unsqueeze(1) >= keys)).nonzero()
            if len(wrong):
                row, column = wrong[0].tolist()
                return (
                    f"rank {r}, keys of rank {o}, share {s}, {n} ranks: the query at position "
                    f"{queries[row]} {'attends' if mask[row, column] else 'does not attend'} to "
                    f"the key at position {keys[column]}. {name_cause(masks, s, n)}"
                )
    return "right"


def name_cause(masks: Mapping[tuple[int, int], Tensor], s: int, n: int) -> str:
    """Return the usual mistake that gives just these masks."""
    mistakes = {
        cause: lambda r, o, of=of: of(r, s, n).unsqueeze(1) >= of(o, s, n)
        for cause, of in POSITIONS.items()
    } | {
        cause: lambda r, o, of=of: of(RIGHT(r, s, n).unsqueeze(1), RIGHT(o, s, n).unsqueeze(0))
        for cause, of in MASKS.items()
    }
    for cause, mistake in mistakes.items():
        if all(torch.equal(mask, mistake(*pair)) for pair, mask in masks.items()):
            return cause
    return UNKNOWN


# ---------------------------------------------------------------------- the loss

# How many of 8 tokens count on each rank.
CASES = {
    "each rank counts another number of tokens": (1, 3, 6, 7),
    "rank 0 counts no token": (0, 2, 5, 8),
    "all ranks count as many tokens": (4, 4, 4, 4),
}


def make_case(counted: int, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return a parameter, the losses of a rank's tokens that follow from it, and which count."""
    weight_D = torch.tensor([0.3, -0.7, 0.5], dtype=torch.float64, requires_grad=True)
    x_ND = torch.randn(8, 3, generator=torch.Generator().manual_seed(rank)).double()
    counts_N = (torch.arange(8) >= 8 - counted).double()
    return weight_D, (x_ND @ weight_D).exp().view(2, 4), counts_N.view(2, 4)


def run_rank(rank: int, path: Path, folder: str, answers: Any) -> None:
    """Run the learner's loss in each case, on one rank; send the gradients, or what is wrong."""
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", RANKS)
    with World.join(backend="gloo", store=store, rank=rank, size=RANKS) as world:
        gradients: list[Any] = []
        try:
            code = load(path)
            for counted in CASES.values():
                weight_D, losses_BS, counts_BS = make_case(counted[rank], rank)
                loss = code.loss(losses_BS, counts_BS, world.whole)
                fault = find_fault_of_form("loss", loss, [])
                if not fault and not loss.requires_grad:
                    fault = (
                        "no gradient leads back from it, for all_reduce has none. Sum the counts "
                        "over the ranks, and leave this rank's losses as they are."
                    )
                grad = None if fault else torch.autograd.grad(loss, weight_D)[0].tolist()
                gradients.append(fault or grad)
        except Exception as error:  # the learner's own: it is shown, not raised
            gradients += [locate(error)] * (len(CASES) - len(gradients))
        answers.put((rank, gradients))
        time.sleep(2 * PATIENCE)  # a rank that left would break the others' collectives


def judge_gradients(counted: tuple[int, ...], mean_D: Tensor) -> str:
    """Return an empty string, or what is wrong with the mean of the ranks' gradients."""
    of_counted, of_all, of_means = [], [], []
    for rank, number in enumerate(counted):
        weight_D, losses, counts = make_case(number, rank)
        means = (losses * counts).sum(1) / counts.sum(1).clamp(min=1)
        for grads, x in ((of_counted, losses * counts), (of_all, losses), (of_means, means)):
            grads.extend(torch.autograd.grad(x.sum(), weight_D, retain_graph=True))
    tokens, n = sum(counted), RANKS
    total_D, all_D = sum(of_counted), sum(of_all)
    right = total_D / tokens
    if torch.allclose(mean_D, right, rtol=1e-9):
        return ""
    if mean_D.isnan().any():
        return "It is not a number: a rank that counts no token divides zero by zero."
    per_rank = [grad / max(1, number) for grad, number in zip(of_counted, counted, strict=True)]
    mistakes = {
        "It is a mean of means. A token of a rank with few counted tokens weighs more than one of "
        "a rank with many: divide by the count of all ranks.": sum(per_rank) / n,
        "Each rank returns its part of the mean, and the mean over ranks divides by n once more: "
        "multiply by axis.size.": right / n,
        "It divides by n where it should multiply by it.": right / n**2,
        "It multiplies by n once too often.": right * n,
        "It is not divided by the count.": total_D / n,
        "It is multiplied by n, but not divided by the count.": total_D,
        "It divides by the tokens of all ranks that count and that don't.": total_D / (8 * n),
        "It divides by all tokens of this rank: by those that don't count too, and not by those of "
        "the other ranks.": total_D / (8 * n) / n,
        "Tokens that don't count are in the sum.": all_D / tokens,
        "It is the mean of all tokens, of those that don't count too.": all_D / (8 * n),
        "It divides by the largest of the ranks' counts, not by their sum.":
            total_D / max(counted) / n,
        "It is a mean of the means of sequences: divide by the count of all tokens.":
            sum(of_means) / (2 * n),
    }  # fmt: skip
    causes = (cause for cause, grad in mistakes.items() if torch.allclose(mean_D, grad, rtol=1e-9))
    return (
        f"Its norm is {mean_D.norm() / right.norm():.4g} x the right one. {next(causes, UNKNOWN)}"
    )


def judge_loss(path: Path) -> str:
    """Return "right", or what is wrong with a loss, run on four processes."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "shardlab.comm"])
    answers = context.Queue()
    heard: dict[int, list[Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            context.Process(target=run_rank, args=(rank, path, folder, answers), daemon=True)
            for rank in range(RANKS)
        ]
        for process in ranks:
            process.start()
        try:
            while len(heard) < RANKS:
                rank, gradients = answers.get(timeout=PATIENCE if heard else 10 * PATIENCE)
                heard[rank] = gradients
        except queue.Empty:
            waiting = ", ".join(str(rank) for rank in range(RANKS) if rank not in heard)
            return (
                f"rank {waiting} waits for a collective that the other ranks have not called. "
                "Every rank must call all_reduce equally often: look for an `if`."
            )
        finally:
            for process in ranks:
                process.kill()
                process.join()
    for at, (case, counted) in enumerate(CASES.items()):
        results = [heard[rank][at] for rank in range(RANKS)]
        for rank, result in enumerate(results):
            if isinstance(result, str):
                return f"on rank {rank}: {result}"
        if fault := judge_gradients(counted, torch.tensor(results, dtype=torch.float64).mean(0)):
            return f"where {case}, the mean of the ranks' gradients is wrong. {fault}"
    return "right"


def grade_visible(path: Path) -> str:
    """Return "right", or what is wrong with the mask of a file."""
    try:
        return judge_visible(load(path).visible)
    except Exception as error:  # the learner's own
        return locate(error)


def grade(path: Path) -> dict[str, str]:
    """Return what is said of each of the two functions."""
    return {"visible": grade_visible(path), "loss": judge_loss(path)}


def main() -> int:
    """Print what is said of each function; return 0 if both are right."""
    verdicts = grade(FILE)
    for name, verdict in verdicts.items():
        print(f"{name}: {verdict}")
    return 0 if {*verdicts.values()} == {"right"} else 1


if __name__ == "__main__":
    sys.exit(main())
