"""What must divide what in a run of lab 01, found out before any rank joins."""

from grammar import Grammar
from resuming import check as check_resuming
from settings import ORDERS, Settings

from shardlab.grid.layout import Layout
from shardlab.grid.rules import check_divides, check_pipeline, check_tensor


class Refused(Exception):  # noqa: N818  no fault of the program's
    """A run that cannot be as it was asked for, found out on every rank alike; says why."""


def demand_fit(run: Settings, world_size: int) -> None:
    """Refuse a run that cannot be cut as asked, in the order in which one would mend it.

    Raises:
        ValueError: says what does not divide, and what would.
    """
    for name in (
        "tp", "cp", "pp", "dp", "ep", "batch", "steps", "every", "pieces", "evaluate",
        "sequence", "layers", "hidden", "heads",
    ):  # fmt: skip
        if (number := getattr(run, name)) is not None and number < 1:
            raise ValueError(f"{name} is {number}; choose 1 or more")
    if (ranks := run.tp * run.cp * run.pp * run.dp) != world_size:
        cut = f" x --cp {run.cp}" if run.cp > 1 else ""
        raise ValueError(
            f"--tp {run.tp}{cut} x --pp {run.pp} x --dp {run.dp} needs {ranks} ranks, but "
            f"the world has {world_size}: launch with torchrun --nproc-per-node={ranks}, or "
            f"choose sizes whose product is {world_size}"
        )
    check_resuming(run)
    if run.fsdp:
        _demand_fsdp(run)
    if run.experts or run.ep > 1:
        _demand_experts(run)
    _demand_a_way_to_train(run)
    if run.cp > 1 and run.heads % run.tp == 0:  # else that is said below
        from shardlab.context.zigzag import check_heads, check_sequence

        check_sequence(run.sequence, run.cp)
        check_heads(run.cp_kind, run.cp, run.heads // run.tp, "heads")
    sequence = run.sequence // run.cp if run.sequence_parallel else None
    check_tensor(run.tp, hidden=run.hidden, heads=run.heads, sequence=sequence)
    check_pipeline(run.pp * run.chunks, layers=run.layers)
    check_divides("data", run.dp, run.batch, "sequences of a batch")
    share = run.batch // run.dp
    if share % run.pieces:
        raise ValueError(
            f"{run.pieces} micro-batches do not divide the {share} sequences of a data rank "
            f"(batch {run.batch}, data {run.dp}); choose --microbatches or --batch to fit"
        )
    assert run.actions  # a schedule refuses stages and micro-batches that it can't order


def _demand_a_way_to_train(run: Settings) -> None:
    """Refuse what no optimizer and no model can do."""
    if run.clip is not None and not run.clip > 0:
        raise ValueError(f"--clip {run.clip}: give the most that the norm may be, or leave it")
    if run.warmup < 0 or (run.decay is not None and run.decay <= run.warmup):
        raise ValueError(
            f"--warmup {run.warmup} --decay {run.decay}: the rate rises for 0 steps or more, and "
            "is down at a later one; choose --decay larger"
        )
    if not run.lr >= 0:
        raise ValueError(f"--lr {run.lr}: choose a rate of 0 or more")
    if run.data is None and run.vocabulary < Grammar.words:
        raise ValueError(
            f"--vocabulary {run.vocabulary}: the grammar uses {Grammar.words} words; choose as many"
        )
    if not 0 <= run.dropout < 1:
        raise ValueError(f"--dropout {run.dropout}: choose 0 or more, and less than 1")
    if run.dropout and run.cp > 1:
        raise ValueError(
            f"--dropout {run.dropout} with --cp {run.cp}: attention in pieces draws no masks; "
            "leave one of the two"
        )


def _demand_experts(run: Settings) -> None:
    """Refuse experts that these ranks can't share."""
    if run.experts < 2 or run.fsdp:
        raise ValueError(
            f"--experts {run.experts} with --ep {run.ep}: give --experts 2 or more, and "
            "leave --fsdp, which would cut each rank's experts with those of others"
        )
    if run.tp > 1 and not run.sequence_parallel:
        raise ValueError(
            f"--experts with --tp {run.tp} goes with --sequence-parallel: without it every "
            "tensor rank routes the same words, and an expert sees them again"
        )
    check_divides("expert", run.ep, run.experts, "experts")
    ranks = run.tp * run.cp * run.dp
    check_divides("expert", run.ep, ranks, "tensor, context and data ranks")
    Layout(run.tp, run.cp, 1, run.dp, run.pp, ORDERS[run.order]).for_experts(run.ep, 1)


def _demand_fsdp(run: Settings) -> None:
    """Refuse what FSDP can't be combined with here."""
    if run.dp * run.cp < 2:
        raise ValueError(
            f"--fsdp cuts the model's state over the data ranks, and --dp is {run.dp}: choose "
            "--dp 2 or more"
        )
    if run.pp > 1:
        raise ValueError(
            f"--fsdp with --pp {run.pp}: each stage would gather its parameters for each "
            "micro-batch anew; choose --pp 1 (it goes with --tp), or leave --fsdp"
        )
    if run.schedule == "zb-h1":
        raise ValueError(
            "--fsdp with --schedule zb-h1: FSDP reduces gradients in backward, and zb-h1 leaves "
            "them for later; choose 1f1b"
        )
