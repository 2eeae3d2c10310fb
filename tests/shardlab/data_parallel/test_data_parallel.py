"""Data parallelism against one process and against DDP.

A wrong bucket shows in the pure tests, a wrong hook or divisor in one step of SGD (AdamW would hide
a factor), a wrong state between steps in four."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from shardlab.comm import Axis, Pending, World
from shardlab.comm.axis import Kind
from shardlab.data_parallel.buckets import assign_buckets
from shardlab.data_parallel.data_parallel import DataParallel
from shardlab.data_parallel.replicas import ReplicaError
from tests.shardlab.pool import on_ranks

SHARES = 8  # samples: one a rank on eight ranks, all on one
F64 = torch.float64
STEPS = 4
SMALL = {"bucket_bytes": 200}  # several buckets, one parameter over size


class Net(nn.Module):
    """A tied weight, a frozen one, a scalar, one that is made first and used last, a bias alone."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.last = nn.Linear(6, 4, dtype=F64)
        self.embed = nn.Parameter(torch.randn(6, 5, dtype=F64))
        self.body = nn.ModuleList(nn.Linear(5, 5, dtype=F64) for _ in range(3))
        self.scale = nn.Parameter(torch.ones((), dtype=F64) + seed / 7)
        self.fixed = nn.Parameter(torch.randn(5, dtype=F64), requires_grad=False)
        self.head = self.embed  # tied

    def forward(self, x_Bi: Tensor) -> Tensor:
        h = x_Bi @ self.embed + self.fixed
        for layer in self.body:
            h = h + torch.tanh(layer(h))
        return self.last(self.scale * h @ self.head.T)


def data(step: int) -> tuple[Tensor, Tensor]:
    """The whole batch of a step: [SHARES, 6] and [SHARES, 4]."""
    generator = torch.Generator().manual_seed(1000 + step)
    wide = torch.randn(SHARES, 10, generator=generator, dtype=F64)
    return wide[:, :6], wide[:, 6:]


def share(axis: Axis, whole: Tensor) -> Tensor:
    return whole.chunk(axis.size)[axis.rank]


def optimizer_of(kind: str, model: nn.Module) -> torch.optim.Optimizer:
    live = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.SGD(live, lr=0.05) if kind == "sgd" else torch.optim.AdamW(live, lr=0.01)


def loss_of(model: nn.Module, x: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    return nn.functional.mse_loss(model(x), y, reduction=reduction)


def train_whole(kind: str, device: torch.device, steps: int = STEPS) -> list[Tensor]:
    model = Net(0).to(device)
    optimizer = optimizer_of(kind, model)
    for step in range(steps):
        x, y = (t.to(device) for t in data(step))
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def worst(actual: list[Tensor], expected: list[Tensor]) -> float:
    """The largest relative error of a tensor, in the maximum norm."""
    return max(
        float((f - e).abs().max() / e.abs().max().clamp(min=1e-300))
        for f, e in zip(actual, expected, strict=True)
    )


# ---------------------------------------------------------------------- pure


def test_buckets_are_cut_where_pytorch_cuts_them() -> None:
    shapes = [3, 50, 1, 7, 7, 300, 2, 2, 90, 1, 1]
    for dtypes in ((torch.float32,), (torch.float32, torch.bfloat16), (F64, F64, torch.float32)):
        tensors = [torch.zeros(n, dtype=dtypes[i % len(dtypes)]) for i, n in enumerate(shapes)]
        for caps in ([1], [100], [40, 400], [10_000], [8, 200, 1000]):
            expected, _ = dist._compute_bucket_assignment_by_size(tensors, caps, [])
            assert assign_buckets(tensors, caps) == expected


def test_a_bucket_size_below_one_byte_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1; found"):
        assign_buckets([torch.zeros(3)], [0])


class Watched(Axis):
    """An axis of one rank that notes when an all-reduce starts, and of how much."""

    def __init__(self, seen: list[Any]) -> None:
        super().__init__(None, "data", (0,), "torch")
        self.seen = seen

    def start(self, kind: Kind, x: Tensor, **settings: Any) -> Pending:
        if kind == "all_reduce":
            self.seen.append(x.numel())
        return super().start(kind, x, **settings)


def chain(depth: int, seen: list[Any]) -> nn.Sequential:
    """Linears of 2, 3, 4 … inputs; each notes when backward reaches its output."""

    def note(output: Tensor, i: int) -> None:
        output.register_hook(lambda _: seen.append(f"layer {i}"))

    model = nn.Sequential(*(nn.Linear(i + 2, i + 3, dtype=F64) for i in range(depth)))
    for i, layer in enumerate(model):
        layer.register_forward_hook(lambda _m, _x, output, i=i: note(output, i))
    return model


def test_a_bucket_leaves_while_backward_goes_on_below() -> None:
    seen: list[Any] = []
    model = chain(3, seen)
    replicas = DataParallel(model.named_parameters(), Watched(seen), bucket_bytes=1, start="trust")
    model(torch.ones(1, 2, dtype=F64)).sum().backward()
    assert seen.index("layer 2") < seen.index(20) < seen.index("layer 1") < seen.index("layer 0")
    assert sorted(n for n in seen if isinstance(n, int)) == [3, 4, 5, 6, 12, 20]
    replicas.finish()


def test_gradients_are_views_into_their_bucket_and_parameters_stay_untouched() -> None:
    model = Net(1)
    before = [p.detach().clone() for p in model.parameters()]
    replicas = DataParallel(model.named_parameters(), Axis.alone("data"), **SMALL)
    storages = [b.flat_N.untyped_storage().data_ptr() for b in replicas.buckets]
    loss_of(model, *data(0)).backward()
    replicas.finish()
    for parameter in model.parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None
            assert parameter.grad.untyped_storage().data_ptr() in storages
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    assert len(storages) > 2


def alone(model: nn.Module, **settings: Any) -> DataParallel:
    return DataParallel(model.named_parameters(), Axis.alone("data"), **SMALL, **settings)


def test_a_tied_parameter_that_is_listed_twice_is_reduced_once() -> None:
    model = Net(0)
    twice = [*model.named_parameters(), ("head", model.head)]
    replicas = DataParallel(twice, Axis.alone("data"), **SMALL)
    assert sum(b.flat_N.numel() for b in replicas.buckets) == sum(
        p.numel() for p in model.parameters() if p.requires_grad
    )
    loss_of(model, *data(0)).backward()
    replicas.finish()


def test_a_parameter_without_gradient_is_named() -> None:
    model = Net(0)
    replicas = alone(model)
    model.body[0](torch.ones(5, dtype=F64)).sum().backward()
    with pytest.raises(
        RuntimeError, match=r"8 of 10 parameters.*last\.weight \(0 of 1\).*freeze those"
    ):
        replicas.finish()


def test_a_backward_after_the_last_and_before_finish_is_refused() -> None:
    model = Net(0)
    alone(model)
    loss_of(model, *data(0)).backward()
    with pytest.raises(
        RuntimeError, match=r"got one more gradient than the 1 of a step: call finish\(\)"
    ):
        loss_of(model, *data(0)).backward()


def test_a_parameter_thawed_later_is_named() -> None:
    model = Net(0)
    replicas = alone(model)
    model.fixed.requires_grad_()
    loss_of(model, *data(0)).backward()
    with pytest.raises(RuntimeError, match="fixed was frozen when DataParallel was made"):
        replicas.finish()


def test_a_sparse_gradient_is_refused() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    DataParallel(table.named_parameters(), Axis.alone("data"))
    with pytest.raises(ValueError, match=r"weight has a sparse gradient.*sparse=False"):
        table(torch.tensor([1])).sum().backward()


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="reduction is one of mean, sum, tokens"):
        alone(Net(0), reduction="average")
    with pytest.raises(ValueError, match="nothing to reduce"):
        DataParallel([], Axis.alone("data"))
    with pytest.raises(ValueError, match=r'goes with reduction="tokens"'):
        alone(Net(0)).finish(tokens=3)


# ---------------------------------------------------------------------- on real ranks


def train_sharded(
    world: World, kind: str, *, to_none: bool = True, micro: int = 1, **settings: Any
) -> list[Tensor]:
    axis = world.whole
    model = Net(world.rank).to(world.device)  # other weights on every rank: broadcast must mend it
    replicas = DataParallel(model.named_parameters(), axis, backwards=micro, **SMALL, **settings)
    optimizer = optimizer_of(kind, model)
    for step in range(STEPS):
        x, y = (share(axis, t.to(world.device)) for t in data(step))
        for a, b in zip(x.chunk(micro), y.chunk(micro), strict=True):
            (loss_of(model, a, b) / micro).backward()
        replicas.finish()
        optimizer.step()
        optimizer.zero_grad(set_to_none=to_none)
    return [p.detach() for p in model.parameters()]


def train_ddp(world: World, kind: str) -> list[Tensor]:
    axis = world.whole
    model = Net(world.rank).to(world.device)
    wrapped = DistributedDataParallel(model, process_group=axis.group)
    optimizer = optimizer_of(kind, model)
    for step in range(STEPS):
        x, y = (share(axis, t.to(world.device)) for t in data(step))
        optimizer.zero_grad()
        loss_of(wrapped, x, y).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def parity(world: World, kind: str) -> dict[str, float]:
    """Steps in each way; the worst relative error of a parameter against one process."""
    whole = train_whole(kind, world.device)
    ways: dict[str, Callable[[], list[Tensor]]] = {
        "ours": lambda: train_sharded(world, kind),
        "zeroed in place": lambda: train_sharded(world, kind, to_none=False),
        "micro-batches": lambda: train_sharded(world, kind, micro=8 // world.size),
        "DDP": lambda: train_ddp(world, kind),
    }
    if kind == "adamw":
        ways = {name: ways[name] for name in ("ours", "DDP")}
    return {name: worst(way(), whole) for name, way in ways.items()}


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_some_steps_equal_one_process_and_ddp(pool: Any, ranks: int) -> None:
    for kind in ("sgd", "adamw"):
        for errors in pool(ranks).run(parity, kind):
            assert max(errors.values()) <= 1e-12, errors


def test_a_step_in_which_no_token_counts_has_gradients_of_zero_and_not_nan() -> None:
    model = Net(0)
    replicas = alone(model, reduction="tokens")
    (0 * loss_of(model, *data(0))).backward()
    replicas.finish(tokens=0)
    assert all(not p.grad.any() for p in model.parameters() if p.grad is not None)


@on_ranks(2)
def test_ranks_that_reach_their_parameters_in_other_orders_still_agree(world: World) -> None:
    """Ranks reach the layers in opposite orders: the collectives must still pair up."""
    axis = world.whole
    torch.manual_seed(0)
    layers = nn.ModuleList(nn.Linear(4, 4, bias=False, dtype=F64) for _ in range(4))
    replicas = DataParallel(layers.to(world.device).named_parameters(), axis, bucket_bytes=1)
    good = True
    for step in range(3):
        x = torch.full((1, 4), float(axis.rank + step), dtype=F64, device=world.device)
        for layer in list(layers)[:: 1 if axis.rank % 2 else -1]:
            x = layer(x)
        x.sum().backward()
        local = [layer.weight.grad.clone() for layer in layers]
        replicas.finish()
        both = [axis.all_gather(layer.weight.grad[None].contiguous()) for layer in layers]
        good &= all(torch.equal(g[0], g[i]) for g in both for i in range(axis.size))
        good &= len(local) == 4
        layers.zero_grad()
    assert good


@on_ranks(2)
def test_from_the_second_step_on_buckets_are_those_of_ddp(world: World) -> None:
    """DDP's and our bucket sizes in elements, in three steps; the last layer is listed first."""
    ddp: list[list[int]] = []

    def note(_, bucket):  # type: ignore[no-untyped-def]  # DDP reads the annotations
        ddp[-1].append(bucket.buffer().numel())
        future: torch.futures.Future[Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    layers = [nn.Linear(60, 60, dtype=F64) for _ in range(7)] + [nn.Linear(60, 30, dtype=F64)]
    model = nn.ModuleList(reversed(layers)).to(world.device)
    model.forward = lambda x: nn.Sequential(*layers)(x).sum()  # type: ignore[method-assign]
    wrapped = DistributedDataParallel(model, process_group=world.whole.group, bucket_cap_mb=0.04)
    wrapped.register_comm_hook(None, note)
    x = torch.ones(1, 60, dtype=F64, device=world.device)
    for _ in range(3):
        ddp.append([])
        wrapped(x).backward()
    model.zero_grad()
    cap = int(0.04 * 2**20)
    replicas = DataParallel(model.named_parameters(), world.whole, bucket_bytes=cap)
    ours = []
    for _ in range(3):
        model(x).backward()
        ours.append([b.flat_N.numel() for b in replicas.buckets])
        replicas.finish()
    assert len(ddp[0]) == 1, "DDP's first step knows no order yet: one bucket, no overlap"
    assert len(ours[0]) > 1
    assert ours[1:] == ddp[1:]
    assert len(ours[1]) == 4


def differing(world: World, what: str) -> str:
    model = Net(world.rank if what == "values" else 0).to(world.device)
    named = [(n, p) for n, p in model.named_parameters()]
    if what == "names" and world.rank == 1:
        named[3] = ("other", named[3][1])
    if what == "count" and world.rank == 1:
        named = named[:-1]
    if what == "frozen" and world.rank == 1:
        model.scale.requires_grad_(False)
    if what == "values":
        with torch.no_grad():
            model.fixed.fill_(1.0)
    try:
        DataParallel(named, world.whole, start="verify")
    except ReplicaError as error:
        return str(error)
    return "equal"


def test_replicas_that_differ_are_named_before_the_first_step(pool: Any) -> None:
    run = pool(2).run
    assert run(differing, "nothing") == ["equal", "equal"]
    for message in run(differing, "values"):
        assert "10 of 11 parameters differ" in message and "fixed" not in message
        assert "embed: ranks [1] hold other values than rank 0" in message
    for message, name in zip(run(differing, "names"), ("last.weight", "other"), strict=True):
        assert f"parameter 3 is {name} (4, 6) torch.float64" in message
    for message in run(differing, "frozen"):
        assert "parameter 1 is scale () torch.float64" in message
    for message in run(differing, "count"):
        assert "hold [11, 10] parameters" in message


# ------------------------------------------------------------------ a backward that raises


class Failing(Net):
    """Raises in backward, after `last` has its gradients, while `fails` is set."""

    fails = False

    def forward(self, x_Bi: Tensor) -> Tensor:
        h = x_Bi @ self.embed + self.fixed
        for index, layer in enumerate(self.body):
            h = h + torch.tanh(layer(h))
            if self.fails and index == 1:
                h.register_hook(self._fail)
        return self.last(self.scale * h @ self.head.T)

    def _fail(self, _: Tensor) -> None:
        raise ZeroDivisionError("in backward")


def gone_on(world: World, who: str, forget: str, main_grads: bool) -> list[str]:
    """Steps of which the second raises in its second backward, or ends before; how each ended."""
    model, whole = Failing(0).to(world.device), Net(0).to(world.device)
    replicas = DataParallel(
        model.named_parameters(), world.whole, backwards=2,
        main_grads=F64 if main_grads else None, **SMALL,
    )  # fmt: skip
    ends = []
    for step in range(4):
        x, y = (share(world.whole, t.to(world.device)) for t in data(step))
        model.fails = False
        try:
            loss_of(model, x, y).backward()
            if step == 1 and who == "nobody":
                raise ZeroDivisionError("given up")
            model.fails = step == 1 and who in ("all", str(world.rank))
            loss_of(model, x, y).backward()
            replicas.finish()
        except ZeroDivisionError:
            ends.append("raised")
        else:
            whole.zero_grad()
            (2 * loss_of(whole, *(t.to(world.device) for t in data(step)))).backward()
            trained = [p for p in model.parameters() if p.requires_grad]
            gradients = [getattr(p, replicas.attribute) for p in trained]
            right = [p.grad for p in whole.parameters() if p.grad is not None]
            off = worst(gradients, right)  # type: ignore[arg-type]
            ends.append("nan" if off != off else "right" if off < 1e-12 else "wrong")
        (replicas if forget == "replicas" else model).zero_grad()
    return ends


@pytest.mark.parametrize(
    ("forget", "main_grads"), [("model", False), ("replicas", False), ("replicas", True)]
)
def test_a_step_whose_backward_raised_can_be_followed_by_others(
    pool: Any, forget: str, main_grads: bool
) -> None:
    run = pool(2).run
    for who in ("all",) if forget == "model" else ("all", "nobody"):
        ends = run(gone_on, who, forget, main_grads)
        assert ends == [["right", "raised", "right", "right"]] * 2
    assert run(gone_on, "1", forget, main_grads) == [
        ["right", "nan", "right", "right"],
        ["right", "raised", "right", "right"],
    ]


def test_what_a_backward_that_raised_has_left_is_not_used() -> None:
    model = Failing(0)
    replicas = alone(model)
    model.fails = True
    with pytest.raises(ZeroDivisionError):
        loss_of(model, *data(0)).backward()
    with pytest.raises(RuntimeError, match=r"a backward of this step raised: zero_grad\(\)"):
        replicas.finish()
    model.fails = False
    with pytest.raises(RuntimeError, match=r"after a backward that raised, call zero_grad\(\)"):
        loss_of(model, *data(0)).backward()
    model.zero_grad()
    loss_of(model, *data(0)).backward()
    replicas.finish()
