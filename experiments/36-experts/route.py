"""Lab 04: a layer of experts on four ranks: where tokens go, what it costs, whose gradients agree.

    torchrun --nproc-per-node=4 experiments/36-experts/route.py
    torchrun --nproc-per-node=4 experiments/36-experts/route.py --dispatch all-gather
    torchrun --nproc-per-node=4 experiments/36-experts/route.py --skew 1 --capacity 1.25
    torchrun --nproc-per-node=4 experiments/36-experts/route.py --ep 2 --finish a

Any layout starts from the same weights and the same tokens. docs/labs/04-experts.md walks through.

Dimensions: S tokens of one rank (T of all), H hidden, E experts, g ranks.
"""

import argparse
import sys
from dataclasses import dataclass

try:
    import torch
    from finish import WAYS
    from torch import Tensor

    from shardlab.comm import Axis, World
    from shardlab.comm.exit_reason import report_reason
    from shardlab.experts.expert_config import ExpertConfig
    from shardlab.experts.layer import ExpertAxes, ExpertLayer
    from shardlab.gpt.config import GPTConfig
    from shardlab.grid.grid import Grid
    from shardlab.proofs.ledger import Ledger
except ModuleNotFoundError as missing:
    sys.exit(
        f"route.py: error: this Python has no {missing.name}: run `make bench-env` once, and "
        "`source .venv/bin/activate` in every terminal"
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One run. The defaults are the example of theory 05.

    Attributes:
        ep: ranks that the experts are dealt out to; the world's others hold copies.
        dispatch: "all-to-all" or "all-gather".
        experts, top_k: E and k.
        tokens: of one rank.
        skew: added to the scores of experts 0 and 1, so that tokens like them.
        capacity: rows that an expert takes of a rank, as a multiple of an even share.
        pad: fill up to it.
        aux: weight of the auxiliary loss.
        steps: of training the router alone, before the step that is shown.
        finish: how gradients are completed, one of finish.py's.
    """

    ep: int = 4
    dispatch: str = "all-to-all"
    experts: int = 8
    top_k: int = 2
    tokens: int = 128
    hidden: int = 128
    skew: float = 0.0
    capacity: float | None = None
    pad: bool = False
    aux: float = 0.0
    steps: int = 0
    finish: str = "b"

    @property
    def model(self) -> GPTConfig:
        """What the layer belongs to; of a GPT's sizes only the width matters here."""
        experts = ExpertConfig(
            count=self.experts, top_k=self.top_k, dispatch=self.dispatch, capacity=self.capacity,
            pad=self.pad, aux_loss=self.aux,
        )  # fmt: skip
        return GPTConfig(
            layers=1, hidden=self.hidden, heads=1, vocab=1, sequence=self.tokens, init_std=0.1,
            experts=experts,
        )  # fmt: skip


class Step:
    """One rank's part of a step: its experts, its tokens, and what became of them.

    Args:
        settings: the run, the same on every rank.
        world: the ranks.
    """

    def __init__(self, settings: Settings, world: World) -> None:
        """Make the groups, the layer and the tokens; every rank calls this."""
        self.settings = settings
        self.grid = Grid(world=world, expert=settings.ep)
        self.layer = skewed(settings, ExpertAxes.of(self.grid))
        # Every rank draws all tokens and keeps its share, so nobody has to send any.
        drawn = torch.Generator().manual_seed(0)
        self.all_TH = torch.randn(world.size * settings.tokens, settings.hidden, generator=drawn)
        self.x_SH = self.all_TH.chunk(world.size)[world.rank]
        self.chosen_gE = torch.empty(0)

    def train_router(self) -> None:
        """Let the auxiliary loss move the router's weights; the experts stay as they are."""
        optimizer = torch.optim.AdamW(self.layer.router.parameters(), lr=0.05)
        for _ in range(self.settings.steps):
            self.layer(self.x_SH.unsqueeze(1)).square().mean().backward()
            WAYS["b"](self.layer, self.grid)
            optimizer.step()
            self.layer.zero_grad()

    def forward_and_backward(self) -> Ledger:
        """Run the layer on this rank's tokens; return what was sent."""
        seen: list[Tensor] = []
        hook = self.layer.router.register_forward_hook(lambda *at: seen.append(at[-1][1].sum(0)))
        ledger = Ledger()
        with ledger:
            with ledger.phase("forward"):
                y_SH = self.layer(self.x_SH.unsqueeze(1)).squeeze(1)
            y_SH.square().mean().backward()
        hook.remove()
        self.chosen_gE = self.grid.data.all_gather(seen[0]).view(-1, self.settings.experts)
        return ledger

    def off_by(self) -> dict[str, tuple[float, float]]:
        """Complete the gradients; return each one's error and length beside one process's.

        Both relative: |found - true| / |true| and |found| / |true|.
        """
        alone = skewed(self.settings, ExpertAxes.alone())
        alone.router.load_state_dict(self.layer.router.state_dict())  # which may have been trained
        # A loss attached inside the layer must be told what the main loss is multiplied by.
        alone.router.scale = 1 / self.grid.data.size
        for tokens_SH in self.all_TH.chunk(self.grid.data.size):  # a rank's capacity is its own
            (alone(tokens_SH.unsqueeze(1)).square().mean() * alone.router.scale).backward()
        WAYS[self.settings.finish](self.layer, self.grid)
        true = dict(alone.named_parameters())
        return {
            name: relative_error(parameter.grad, true[name].grad)
            for name, parameter in self.layer.named_parameters()
        }


def skewed(settings: Settings, axes: ExpertAxes) -> ExpertLayer:
    """Make a layer whose router leans towards experts 0 and 1."""
    layer = ExpertLayer(settings.model, "layer", axis=Axis.alone(), axes=axes)
    assert layer.router.bias is not None
    with torch.no_grad():
        layer.router.bias[:2] += settings.skew
    return layer


def relative_error(computed: Tensor | None, true: Tensor | None) -> tuple[float, float]:
    """Return the relative error and the relative length of a gradient."""
    assert computed is not None and true is not None
    length = true.norm().clamp(min=1e-12)
    return ((computed - true).norm() / length).item(), (computed.norm() / length).item()


# ---------------------------------------------------------------------- what is printed


def traffic(step: Step) -> str:
    """Return who computes how many rows, and who sends how much to whom."""
    settings, size = step.settings, step.grid.expert.size
    # [sender, receiver]: rows within each expert group.
    rows = step.chosen_gE.view(len(step.chosen_gE), size, -1).sum(2)
    lines = ["rank  rows to each expert" + " " * 20 + "computes    sends out   sends back"]
    kib = settings.hidden * 4 / 1024
    for rank, chosen in enumerate(step.chosen_gE.tolist()):
        first = rank // size * size
        group, place = rows[first : first + size], rank % size
        out = group[place].sum() - group[place, place]
        back = group[:, place].sum() - group[place, place]
        if settings.dispatch == "all-gather":  # every token to every other rank, chosen or not
            out = back = torch.tensor((size - 1) * settings.tokens)
        lines.append(
            f"{rank:4}  {' '.join(f'{count:4}' for count in chosen)}   "
            f"{int(group[:, place].sum()):7}  {int(out) * kib:7.1f} KiB  {int(back) * kib:7.1f} KiB"
        )
    load = step.chosen_gE.sum(0)
    assignments = settings.top_k * settings.tokens * len(step.chosen_gE)
    lines.append(
        f"busiest expert: {load.max() / load.float().mean():.2f} x the mean; "
        f"{int(load.sum())} rows, of {assignments} chosen"
    )
    return "\n".join(lines)


def gradients(off_by: dict[str, tuple[float, float]]) -> str:
    """Return how far gradients are from those of one process: the worst of router and experts."""
    lines = []
    for part in ("router", "experts"):
        error, length = max(
            (value for name, value in off_by.items() if name.startswith(part)),
            key=lambda value: value[0],
        )
        comparison = "equal" if error < 1e-4 else f"off by {error:.2g}, {length:.2g} x as long"
        lines.append(f"  {part:8} {comparison}")
    return "\n".join(lines)


def report(settings: Settings, world: World) -> str:
    """Run one step; return what rank 0 says of it, in four paragraphs."""
    step = Step(settings, world)
    step.train_router()
    ledger = step.forward_and_backward()
    off_by, copies = step.off_by(), step.grid.expert_data.size
    return "\n\n".join(
        [
            f"{settings.experts} experts over {settings.ep} ranks, {copies} "
            f"{'copies' if copies > 1 else 'copy'} of each; k = {settings.top_k}, "
            f"{settings.tokens} tokens a rank; {settings.dispatch}",
            traffic(step),
            f"what rank 0 asks for\n{ledger.summary()}",
            f"gradients, completed in way {settings.finish}, compared with one process\n"
            f"{gradients(off_by)}",
        ]
    )


def parsed() -> Settings:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="route.py", description=__doc__.split("\n")[0])
    parser.add_argument("--dispatch", choices=["all-to-all", "all-gather"], default="all-to-all")
    parser.add_argument("--finish", choices=list(WAYS), default="b")
    parser.add_argument("--pad", action="store_true")
    for name, kind in (("ep", int), ("experts", int), ("top-k", int), ("steps", int),
                       ("skew", float), ("aux", float), ("capacity", float)):  # fmt: skip
        default = getattr(Settings, name.replace("-", "_"))
        parser.add_argument(f"--{name}", type=kind, default=default)
    return Settings(**vars(parser.parse_args()))


def main() -> int:
    """Read the command line, join the ranks, run one step; return the exit status."""
    settings = parsed()
    torch.set_num_threads(1)
    with World.join(backend="gloo") as world:
        try:
            lines = report(settings, world)
        except ValueError as error:  # sizes that don't divide; the message says which do
            if world.rank == 0:
                print(f"route.py: error: {error}", file=sys.stderr)
            report_reason(str(error))  # of every rank: any may be the first that torchrun sees
            return 2
        if world.rank == 0:
            print(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
