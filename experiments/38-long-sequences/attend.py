"""Lab 06: one sequence on four ranks: who computes what, what three ways send, how they train.

    torchrun --nproc-per-node=4 experiments/38-long-sequences/attend.py
    torchrun --nproc-per-node=4 experiments/38-long-sequences/attend.py --groups 2
    torchrun --nproc-per-node=4 experiments/38-long-sequences/attend.py --mask
    torchrun --nproc-per-node=4 experiments/38-long-sequences/attend.py --train 20 --ignored

Every run starts from the same fp64 numbers. docs/labs/06-long-sequences.md walks through.

Dimensions: B sequences, S tokens (s of one rank), A heads, G key-value groups, D columns of a head.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from dataclasses import dataclass

try:
    import faulty
    import torch
    from torch import Tensor
    from torch.nn.functional import scaled_dot_product_attention

    from shardlab.comm import Axis, World
    from shardlab.comm.exit_reason import report_reason
    from shardlab.context import zigzag
    from shardlab.context.parallel import ContextParallel
    from shardlab.gpt.config import GPTConfig
    from shardlab.gpt.model import GPT
    from shardlab.layers import ops
    from shardlab.layers.cross_entropy import IGNORED, cross_entropy
    from shardlab.proofs.ledger import Ledger
except ModuleNotFoundError as missing:
    sys.exit(
        f"attend.py: error: this Python has no {missing.name}: run `make bench-env` once, and "
        "`source .venv/bin/activate` in every terminal"
    )

KINDS = ("ring", "all-gather", "ulysses")
CUTS = {"in runs": lambda tokens, ranks: torch.arange(tokens), "zig-zag": zigzag.order}
HEADS, HEAD, TOKENS = 8, 16, 512
VOCAB, LENGTH = 16, 64  # of the model that is trained
# The eighths of each sequence that are its answer: a prompt is before them, padding behind.
ANSWERS = ((0, 8), (2, 6), (3, 5), (3, 4))


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One run.

    Attributes:
        groups: key-value groups, for eight heads.
        mask: compare the mask of faulty.py, in place of counting.
        train: steps to train, in place of counting.
        ignored: labels of prompts and padding are ignored in the loss.
    """

    groups: int = HEADS
    mask: bool = False
    train: int = 0
    ignored: bool = False


def compare(off: float) -> str:
    """Return a difference from one process in words, without rounding errors."""
    return "equal to one process" if off < 1e-9 else f"up to {off:.2g} away from one process"


def quote_prediction(name: str, at: int | None = None) -> str:
    """Return what faulty.py predicts, to be printed behind what was counted."""
    prediction = faulty.PREDICTED.get(name)
    if at is not None and isinstance(prediction, (tuple, list)):
        prediction = dict(enumerate(prediction)).get(at)
    return f"; you predicted {'nothing' if prediction is None else prediction}"


# ---------------------------------------------------------------------- one attention, counted


def report_balance(ranks: int) -> str:
    """Return how many pairs of a query and a key each rank computes, in each step of the ring."""
    lines = ["pairs of a query and a key that a rank computes, in each step of the ring"]
    for cut, order in CUTS.items():
        positions = order(TOKENS, ranks).view(ranks, -1)  # of each rank's tokens
        totals = []
        lines.append(f"{cut}:")
        for rank in range(ranks):
            keys = [positions[(rank - step) % ranks] for step in range(ranks)]
            pairs = [int((positions[rank].unsqueeze(1) >= key).sum()) for key in keys]
            totals.append(sum(pairs))
            cells = "".join(f"{count:8,}" for count in pairs)
            lines.append(f"  rank {rank} {cells}, together {sum(pairs):6,}")
        times = max(totals) * ranks / sum(totals)
        lines.append(f"  the slowest rank: {times:.2f} x the mean{quote_prediction(cut)}")
    return "\n".join(lines)


def attend_whole(
    q_BASD: Tensor, k_BGSD: Tensor, v_BGSD: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Return attention of queries to all keys; without a mask it is causal."""
    return scaled_dot_product_attention(
        q_BASD, k_BGSD, v_BGSD, attn_mask=mask, is_causal=mask is None,
        enable_gqa=q_BASD.shape[1] > k_BGSD.shape[1],
    )  # fmt: skip


def draw(groups: int) -> list[Tensor]:
    """Return queries, keys, values and the gradient of the output, of one whole sequence."""
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(1, heads, TOKENS, HEAD, generator=generator).double()
        for heads in (HEADS, groups, groups, HEADS)
    ]


def report_way(kind: str, groups: int, axis: Axis) -> str:
    """Attend forward and backward in one way; return what rank 0 sent, and whether it is right."""
    context = ContextParallel(axis, kind)
    try:
        context.check_heads(HEADS, groups)
    except ValueError as error:
        return f"{kind}: refused: {error}"
    positions = context.positions(TOKENS // axis.size)
    whole = draw(groups)
    local = [x[:, :, positions] for x in whole]
    for x in (*whole[:3], *local[:3]):
        x.requires_grad_()
    with Ledger() as ledger:
        with ledger.phase("forward"):
            out = context.attend(*local[:3])
        out.backward(local[3])
    right = attend_whole(*whole[:3])
    right.backward(whole[3])
    pairs = [(out, right), *((x.grad, y.grad) for x, y in zip(local[:3], whole[:3], strict=True))]
    off = max(float((x - y[:, :, positions]).detach().abs().max()) for x, y in pairs)
    lines = [f"{kind}: {compare(off)}"]
    for at, phase in enumerate(("forward", "backward")):
        messages = Counter(entry.op for entry in ledger.select(phase=phase) if entry.op != "recv")
        calls = " and ".join(f"{number} x {op}" for op, number in messages.items())
        kib = ledger.total(phase=phase).wire / 1024
        lines.append(f"  {phase:8} {kib:5,.0f} KiB in {calls}{quote_prediction(kind, at)}")
    return "\n".join(lines)


# ---------------------------------------------------------------------- your mask


class MaskedContext(ContextParallel):
    """Attention to the keys of all ranks at once, through the mask of faulty.py."""

    def attend(
        self, q_BAsD: Tensor, k_BGsD: Tensor, v_BGsD: Tensor, documents_BS: Tensor | None = None
    ) -> Tensor:
        """Return attention of this rank's queries."""
        rank, ranks, share = self.axis.rank, self.axis.size, q_BAsD.shape[2]
        masks = [faulty.visible(rank, owner, share, ranks) for owner in range(ranks)]
        blocks = ops.all_gather(torch.stack([k_BGsD, v_BGsD]).unsqueeze(0), self.axis)
        return attend_whole(q_BAsD, *torch.cat(blocks.unbind(), 3), mask=torch.cat(masks, 1))


def report_mask(axis: Axis) -> str:
    """Return the error of attention through the mask of faulty.py, by chunk, for both cuts."""
    *whole, _ = draw(HEADS)
    chunks = 2 * axis.size
    lines = ["attention through your mask: the largest error of each chunk of queries"]
    for cut, of in CUTS.items():
        order = of(TOKENS, axis.size)
        positions = order.view(axis.size, -1)[axis.rank]
        out = MaskedContext(axis).attend(*(x[:, :, positions] for x in whole))
        out = ops.gather_along(out, axis, 2)[:, :, order.argsort()]
        errors = (out - attend_whole(*whole)).abs().amax((0, 1, 3)).view(chunks, -1).amax(1)
        owners = order.argsort().view(chunks, -1)[:, 0] // len(positions)
        lines += [
            f"{cut}:",
            "  chunk" + "".join(f"{chunk:6}" for chunk in range(chunks)),
            "  rank " + "".join(f"{owner:6}" for owner in owners.tolist()),
            "  error" + "".join(f"{error:6.2f}" for error in errors.tolist()),
        ]
    return "\n".join(lines)


# ---------------------------------------------------------------------- training


def read_batch(step: int, ignored: bool) -> tuple[Tensor, Tensor]:
    """Return words and next words of whole sequences, [B, S]; two words may follow each."""
    generator = torch.Generator().manual_seed(step)
    words = [torch.randint(0, VOCAB, (len(ANSWERS),), generator=generator)]
    for _ in range(LENGTH):
        words.append(
            (3 * words[-1] + torch.randint(0, 2, words[0].shape, generator=generator)) % VOCAB
        )
    text = torch.stack(words, 1)
    targets = text[:, 1:].clone()
    for sequence, (begin, end) in enumerate(ANSWERS if ignored else ()):
        targets[sequence, : begin * LENGTH // 8] = IGNORED
        targets[sequence, end * LENGTH // 8 :] = IGNORED
    return text[:, :-1], targets


def train(way: str, settings: Settings, axis: Axis) -> list[float]:
    """Return the loss of each step: of one process, of a kind, or with a part of faulty.py."""
    contexts = {kind: ContextParallel(axis, kind) for kind in KINDS}
    contexts |= {"your mask": MaskedContext(axis), "your loss": contexts["ring"]}
    context = contexts.get(way)
    model = GPT(
        GPTConfig(
            layers=2, hidden=32, heads=HEADS, kv_heads=settings.groups, vocab=VOCAB,
            sequence=LENGTH, dtype=torch.float64, init_std=0.1, tie_embeddings=False,
        ), tensor=Axis.alone(), context=context,
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    curve = []
    for step in range(settings.train):
        words, targets = read_batch(step, settings.ignored)
        if context:
            words, targets = context.shard(words), context.shard(targets)
        logits = model(words)
        if way == "your loss":
            losses_sB = cross_entropy(logits, targets.t(), axis=Axis.alone())
            loss = faulty.loss(losses_sB.t(), (targets != IGNORED).double(), axis)
        else:
            loss = model.loss(logits, targets)
        optimizer.zero_grad()
        loss.backward()
        if context:  # the mean over the ranks, of the gradients and of the loss
            tensors = [*(parameter.grad for parameter in model.parameters()), loss.detach()]
            mean = axis.all_reduce(torch.cat([x.flatten() for x in tensors]), op="mean")
            for x, of in zip(tensors, mean.split([x.numel() for x in tensors]), strict=True):
                x.copy_(of.view_as(x))
        optimizer.step()
        curve.append(loss.item())
    return curve


def report_training(settings: Settings, axis: Axis) -> str:
    """Return the losses of some steps, and how far each way is from one process."""
    ways = ["one process", *KINDS, "your mask", "your loss"]
    if HEADS % axis.size or settings.groups % axis.size:
        ways.remove("ulysses")
    curves = {way: train(way, settings, axis) for way in ways}
    shown = [step for step in range(settings.train) if step % 5 == 0 or step == settings.train - 1]
    lines = ["the loss of a step", "step  " + "".join(f"{way:>12}" for way in ways)]
    for step in shown:
        lines.append(f"{step:4}  " + "".join(f"{curves[way][step]:12.4f}" for way in ways))
    right = torch.tensor(curves["one process"])
    for way in ways[1:]:
        off = float((torch.tensor(curves[way]) - right).abs().max())
        lines.append(f"{way}: {compare(off)}")
    return "\n".join(lines)


def report(settings: Settings, world: World) -> str:
    """Return what rank 0 prints."""
    axis = world.whole
    if LENGTH % (2 * axis.size):
        raise ValueError(
            f"{axis.size} ranks don't cut a sequence into {2 * axis.size} equal chunks: choose "
            "--nproc-per-node=2, 4 or 8"
        )
    if settings.train > 0:
        return report_training(settings, axis)
    if settings.mask:
        return report_mask(axis)
    head = f"{TOKENS} tokens on {axis.size} ranks; {HEADS} heads and {settings.groups} groups of "
    ways = [report_way(kind, settings.groups, axis) for kind in KINDS]
    limit = math.gcd(HEADS, settings.groups)
    ways.append(f"Ulysses can use at most {limit} ranks{quote_prediction('most ranks')}")
    return "\n\n".join([
        f"{head}keys and values, of {HEAD} numbers of 8 bytes",
        report_balance(axis.size),
        "\n".join(["what rank 0 sends in one attention", *ways]),
    ])  # fmt: skip


def parse_arguments() -> Settings:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="attend.py", description=__doc__.split("\n")[0])
    parser.add_argument("--groups", type=int, choices=(1, 2, 4, 8), default=HEADS)
    parser.add_argument("--train", type=int, default=0, metavar="STEPS")
    for name in ("mask", "ignored"):
        parser.add_argument(f"--{name}", action="store_true")
    return Settings(**vars(parser.parse_args()))


def main() -> int:
    """Read the command line, join the ranks, report; return the exit status."""
    settings = parse_arguments()
    torch.set_num_threads(1)
    with World.join(backend="gloo") as world:
        try:
            lines = report(settings, world)
        except ValueError as error:  # a number of ranks; the message says which will do
            if world.rank == 0:
                print(f"attend.py: error: {error}", file=sys.stderr)
            report_reason(str(error))
            return 2
        if world.rank == 0:
            print(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
