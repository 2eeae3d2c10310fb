"""The ledger, form by form, on one process under torch's fake backend.

Rank 1 of a world of 4 and of the group [1, 3]. A form that is misread shows in the first table; one
that is missed or counted twice, in how many entries there are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from shardlab.comm import tracing
from shardlab.proofs import dispatch_parser
from shardlab.proofs.collective import Call
from shardlab.proofs.ledger import Entry, Ledger, Total

WORLD = (0, 1, 2, 3)
PAIR = (1, 3)
plain = torch.ops.c10d
func = torch.ops._c10d_functional


@pytest.fixture(autouse=True)
def group() -> Iterator[Any]:
    """The group [1, 3] of a fake world of 4, seen from rank 1."""
    dist.init_process_group("fake", rank=1, world_size=4, store=FakeStore())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # old names are still called by others
        yield dist.new_group([1, 3])
    dist.destroy_process_group()


def f(*shape: int) -> Tensor:
    return torch.zeros(shape)


def waited(*results: Tensor) -> None:
    for result in results:
        func.wait_tensor(result)


def gather_single(group: Any) -> None:
    with suppress(RuntimeError):  # NCCL alone carries it out
        dist.gather_single(f(5), f(10), 1, group=group)


def coalesced(group: Any) -> None:
    with dist._coalescing_manager(group):
        dist.all_reduce(f(4), group=group)
        dist.all_reduce(f(6), group=group)


def coalesced_gather(group: Any) -> None:
    with dist._coalescing_manager(group):
        dist.all_gather_into_tensor(f(8), f(4), group=group)
        dist.all_gather_into_tensor(f(4), f(2), group=group)


def coalesced_scatter(group: Any) -> None:
    with dist._coalescing_manager(group):
        dist.reduce_scatter_tensor(f(4), f(8), group=group)
        dist.reduce_scatter_tensor(f(2), f(4), group=group)


def batched(group: Any) -> None:
    ends = [dist.P2POp(dist.isend, f(5), 3, group), dist.P2POp(dist.irecv, f(7), 3, group)]
    for work in dist.batch_isend_irecv(ends):
        work.wait()


def through_autograd(group: Any) -> None:
    x = f(4).requires_grad_()
    functional.all_gather_tensor_autograd(x, 0, group).sum().backward()


# what is called, and what it must be: op, payload in bytes, wire in bytes, ranks
FORMS: dict[str, tuple[Callable[[Any], Any], list[tuple[Any, ...]]]] = {
    "all_reduce": (lambda g: dist.all_reduce(f(10), group=g), [("all_reduce", 40, 40, PAIR)]),
    "all_reduce over the world": (lambda g: dist.all_reduce(f(10)),
        [("all_reduce", 40, 60, WORLD)]),
    "all_reduce of int64": (lambda g: dist.all_reduce(torch.zeros(3, dtype=torch.int64), group=g),
        [("all_reduce", 24, 24, PAIR)]),
    "all_reduce, asynchronous": (lambda g: dist.all_reduce(f(10), group=g, async_op=True).wait(),
        [("all_reduce", 40, 40, PAIR)]),
    "the group's own method": (lambda g: g.allreduce([f(10)]).wait(),
        [("all_reduce", 40, 40, PAIR)]),
    "coalesced all_reduce": (coalesced, [("all_reduce", 40, 40, PAIR)]),
    "all_gather of a list": (lambda g: dist.all_gather([f(3), f(3)], f(3), group=g),
        [("all_gather", 24, 12, PAIR)]),
    "all_gather_into_tensor": (lambda g: dist.all_gather_into_tensor(f(16), f(4)),
        [("all_gather", 64, 48, WORLD)]),
    "all_gather_single": (lambda g: dist.all_gather_single(f(8), f(4), group=g),
        [("all_gather", 32, 16, PAIR)]),
    "coalesced all_gather": (coalesced_gather, [("all_gather", 48, 24, PAIR)]),
    "reduce_scatter of a list": (lambda g: dist.reduce_scatter(f(3), [f(3), f(3)], group=g),
        [("reduce_scatter", 24, 12, PAIR)]),
    "reduce_scatter_tensor": (lambda g: dist.reduce_scatter_tensor(f(4), f(16)),
        [("reduce_scatter", 64, 48, WORLD)]),
    "coalesced reduce_scatter": (coalesced_scatter, [("reduce_scatter", 48, 24, PAIR)]),
    "all_to_all of lists": (lambda g: dist.all_to_all([f(3), f(3)], [f(3), f(3)], group=g),
        [("all_to_all", 24, 12, PAIR)]),
    "all_to_all_single": (lambda g: dist.all_to_all_single(f(8), f(8)),
        [("all_to_all", 32, 24, WORLD)]),
    "broadcast": (lambda g: dist.broadcast(f(5), 1, group=g), [("broadcast", 20, 20, PAIR)]),
    "reduce": (lambda g: dist.reduce(f(5), 1, group=g), [("reduce", 20, 20, PAIR)]),
    "gather at the root": (lambda g: dist.gather(f(5), [f(5), f(5)], 1, group=g),
        [("gather", 40, 20, PAIR)]),
    "gather elsewhere": (lambda g: dist.gather(f(5), None, 3, group=g), [("gather", 40, 20, PAIR)]),
    "scatter at the root": (lambda g: dist.scatter(f(5), [f(5), f(5)], 1, group=g),
        [("scatter", 40, 20, PAIR)]),
    "send": (lambda g: dist.send(f(5), 3, group=g), [("send", 20, 20, (1, 3))]),
    "send over the world": (lambda g: dist.send(f(5), 2), [("send", 20, 20, (1, 2))]),
    "recv": (lambda g: dist.recv(f(5), 3, group=g), [("recv", 20, 0, (3, 1))]),
    "recv from anyone": (lambda g: plain.recv_any_source_([f(5)], g.boxed(), 0),
        [("recv", 20, 0, (1,))]),
    "isend and irecv": (lambda g: [dist.isend(f(5), 3, group=g), dist.irecv(f(6), 3, group=g)],
        [("send", 20, 20, (1, 3)), ("recv", 24, 0, (3, 1))]),
    "batch_isend_irecv": (batched, [("send", 20, 20, (1, 3)), ("recv", 28, 0, (3, 1))]),
    "barrier": (dist.barrier, [("barrier", 0, 0, PAIR)]),
    "functional all_reduce": (lambda g: functional.all_reduce(f(10), "sum", g) + 1,
        [("all_reduce", 40, 40, PAIR)]),
    "functional all_reduce, in place": (
        lambda g: waited(func.all_reduce_(f(10), "sum", g.group_name)),
        [("all_reduce", 40, 40, PAIR)]),
    "functional all_reduce, coalesced": (
        lambda g: waited(*functional.all_reduce_coalesced([f(4), f(6)], "sum", g)),
        [("all_reduce", 40, 40, PAIR)]),
    "functional all_gather": (lambda g: functional.all_gather_tensor(f(4), 0, g) + 1,
        [("all_gather", 32, 16, PAIR)]),
    "functional all_gather along another dim": (
        lambda g: functional.all_gather_tensor(f(4, 3), 1, g) + 1, [("all_gather", 96, 48, PAIR)]),
    "functional all_gather, out": (
        lambda g: waited(func.all_gather_into_tensor_out(f(4), 2, g.group_name, out=f(8))),
        [("all_gather", 32, 16, PAIR)]),
    "functional all_gather, coalesced": (
        lambda g: waited(*functional.all_gather_into_tensor_coalesced([f(4), f(2)], g)),
        [("all_gather", 48, 24, PAIR)]),
    "functional reduce_scatter": (lambda g: functional.reduce_scatter_tensor(f(8), "sum", 0, g) + 1,
        [("reduce_scatter", 32, 16, PAIR)]),
    "functional reduce_scatter, coalesced": (
        lambda g: waited(
            *functional.reduce_scatter_tensor_coalesced([f(8), f(4)], "sum", [0, 0], g)
        ),
        [("reduce_scatter", 48, 24, PAIR)],
    ),
    "functional all_to_all": (lambda g: functional.all_to_all_single(f(8), None, None, g) + 1,
        [("all_to_all", 32, 16, PAIR)]),
    "functional broadcast": (lambda g: functional.broadcast(f(5), 1, g) + 1,
        [("broadcast", 20, 20, PAIR)]),
    "functional all_gather and its backward": (through_autograd,
        [("all_gather", 32, 16, PAIR), ("reduce_scatter", 32, 16, PAIR)]),
}  # fmt: skip
if hasattr(dist, "gather_single"):  # torch 2.15
    FORMS["gather into one tensor"] = (gather_single, [("gather", 40, 20, PAIR)])


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_counted_once_with_its_bytes_and_global_ranks(group: Any, form: str) -> None:
    call, expected = FORMS[form]
    with Ledger() as counted:
        call(group)
    assert [(e.op, e.payload, e.wire, e.ranks) for e in counted.entries] == expected


def test_no_operator_of_torch_distributed_is_without_a_form() -> None:
    """Against a torch that adds one: each is known, or known not to communicate."""
    missing = set()
    for schema in torch._C._jit_get_all_schemas():
        namespace, name = schema.name.split("::")
        bare = name.strip("_")
        short = bare.removesuffix("_coalesced").removesuffix("_out")
        forms = dispatch_parser._IN_PLACE if namespace == "c10d" else dispatch_parser._FUNCTIONAL
        if namespace not in dispatch_parser.NAMESPACES - {"symm_mem"}:
            continue
        if not {bare, short} & {*forms, *dispatch_parser._NO_COMMUNICATION, "batch_p2p_ops"}:
            missing.add(schema.name)
    assert not missing


def test_a_form_that_is_not_known_is_refused_rather_than_left_out() -> None:
    with torch.library._scoped_library("c10d", "FRAGMENT") as library:
        library.define("all_shuffle_(Tensor x) -> ()")
        library.impl("all_shuffle_", lambda x: None, "CPU")
        with (
            Ledger(),
            pytest.raises(NotImplementedError, match=r"does not know c10d\.all_shuffle_"),
        ):
            torch.ops.c10d.all_shuffle_(f(1))


# ------------------------------------------------------------------ tensors that stand for others


def test_a_dtensor_is_counted_by_the_collectives_that_it_turns_into() -> None:
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tensor",))
    x = distribute_tensor(f(8, 4).requires_grad_(), mesh, [Shard(0)])
    with Ledger() as counted:
        y = (x + 1).redistribute(mesh, [Replicate()])
        (y * y).sum().to_local().backward()
    assert [e[:4] for e in counted.entries] == [("all_gather", 128, 96, WORLD)]
    with Ledger() as counted:
        w = distribute_tensor(f(4, 4), mesh, [Replicate()])
        (x @ w).sum().full_tensor()
    assert [e[:3] for e in counted.entries] == [("broadcast", 64, 64), ("all_reduce", 4, 6)]


def test_a_collective_inside_an_operator_on_dtensors_is_counted_too() -> None:
    """The product redistributes by itself: the ledger sees it only if DTensor goes first."""
    mesh = init_device_mesh("cpu", (4,))
    x = distribute_tensor(f(8, 4), mesh, [Shard(0)])
    w = distribute_tensor(f(4, 4), mesh, [Shard(0)])
    with Ledger() as counted:
        x @ w
    assert [e[:3] for e in counted.entries] == [("all_gather", 64, 48)]


def test_a_collective_on_one_that_is_still_on_its_way_is_counted(group: Any) -> None:
    with Ledger() as counted:
        first = functional.all_reduce(f(10), "sum", group)
        functional.all_gather_tensor(first, 0, group).wait()
    assert [e.op for e in counted.entries] == ["all_reduce", "all_gather"]


def test_tensors_without_data_are_counted_too(group: Any) -> None:
    with FakeTensorMode(), Ledger() as inside:
        dist.all_reduce(torch.zeros(10), group=group)
        (functional.all_gather_tensor(torch.zeros(4), 0, group) + 1).sum()
    with Ledger() as outside, FakeTensorMode():
        dist.all_reduce(torch.zeros(10), group=group)
        (functional.all_gather_tensor(torch.zeros(4), 0, group) + 1).sum()
    for counted in (inside, outside):
        assert [e[:3] for e in counted.entries] == [("all_reduce", 40, 40), ("all_gather", 32, 16)]


# ------------------------------------------------------------------ asked, muted, along


def test_what_is_asked_stands_for_all_that_is_dispatched_inside(group: Any) -> None:
    with Ledger() as counted:
        with tracing.axis("tensor"), tracing.record_as("all_reduce", 64, (0, 1, 2), torch.float64):
            dist.all_reduce(f(10), group=group)
            with tracing.record_as("send", 1, (0, 1), torch.uint8), tracing.paused():
                dist.barrier(group)
            dist.barrier(group)
        dist.barrier(group)
    first, second = counted.entries
    assert first == Entry("all_reduce", 64, 256 / 3, (0, 1, 2), "tensor", torch.float64)
    assert second.op == "barrier"


def test_an_error_inside_ends_the_silence(group: Any) -> None:
    with Ledger() as counted:
        with pytest.raises(KeyError), tracing.paused(), tracing.axis("data"), tracing.phase("x"):
            raise KeyError
        dist.barrier(group)
    assert [(e.op, e.axis, e.phase) for e in counted.entries] == [("barrier", "", "")]


def test_without_a_ledger_they_are_one_object_that_does_nothing(group: Any) -> None:
    calls = [
        tracing.record_as("send", 1, (0, 1), torch.uint8),
        tracing.paused(),
        tracing.axis("x"),
        tracing.phase("x"),
    ]
    assert len({id(call) for call in calls}) == 1


def test_a_ledger_within_another_counts_for_both(group: Any) -> None:
    with Ledger() as outer:
        dist.barrier(group)
        with Ledger() as inner:
            dist.all_reduce(f(1), group=group)
            with tracing.record_as("send", 8, (1, 3), torch.float32):
                dist.barrier(group)
    assert [e.op for e in inner.entries] == ["all_reduce", "send"]
    assert [e.op for e in outer.entries] == ["barrier", "all_reduce", "send"]


def test_a_ledger_may_be_entered_again_and_counts_nothing_outside(group: Any) -> None:
    counted = Ledger()
    for _ in range(2):
        with counted:
            dist.all_reduce(f(1), group=group)
        dist.all_reduce(f(1), group=group)
    assert counted.total() == Total(2, 8, 8)


# ------------------------------------------------------------------ axes, phases, the table


def test_an_axis_is_named_by_its_user_else_by_its_ranks_else_by_its_group(group: Any) -> None:
    described = dist.new_group([1, 2], group_desc="EXPERT_GROUP")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))
    with Ledger(names={"data": range(4)}) as counted:
        with tracing.axis("tensor"):
            dist.all_reduce(f(1))
        dist.all_reduce(f(1))
        dist.all_reduce(f(1), group=group)
        dist.all_reduce(f(1), group=described)
        dist.all_reduce(f(1), group=mesh.get_group("shard"))
    named = ["tensor", "data", "", "EXPERT_GROUP", "mesh_shard"]
    assert [e.axis for e in counted.entries] == named
    with Ledger() as counted:
        dist.all_reduce(f(1))
    assert counted.entries[0].axis == "world"


def test_backward_is_told_from_what_is_outside_it_and_a_phase_has_the_last_word(group: Any) -> None:
    with Ledger() as counted:
        through_autograd(group)
        with counted.phase("step"):
            dist.all_reduce(f(1), group=group)
            through_autograd(group)
        dist.barrier(group)
    assert [e.phase for e in counted.entries] == ["", "backward", "step", "step", "step", ""]
    assert counted.total(phase="step") == Total(3, 4 + 32 + 32, 4 + 16 + 16)
    assert counted.total("all_gather", phase="step").count == 1


def test_who_runs_a_phase_may_name_it_unless_the_ledgers_owner_has(group: Any) -> None:
    with Ledger() as outer, Ledger() as inner, inner.phase("mine"):
        with tracing.phase("forward"), tracing.phase("not this"):
            dist.barrier(group)
        dist.barrier(group)
    assert [e.phase for e in outer.entries] == ["forward", ""]
    assert [e.phase for e in inner.entries] == ["mine", "mine"]


def test_a_step_is_counted_the_same_under_no_grad_and_inference_mode(group: Any) -> None:
    with Ledger() as counted:
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                functional.all_gather_tensor_autograd(f(4), 0, group).wait()
                dist.all_reduce(f(1), group=group)
    assert [e.op for e in counted.entries] == ["all_gather", "all_reduce"] * 2


def test_totals_and_calls_add_up_what_was_selected(group: Any) -> None:
    with Ledger(names={"data": WORLD, "tensor": PAIR}) as counted:
        for _ in range(3):
            dist.all_reduce(f(10), group=group)
        dist.all_reduce(f(10))
    assert counted.total("all_reduce") == Total(4, 160, 180)
    assert counted.total(axis="tensor") == Total(3, 120, 120)
    assert counted.total("send") == Total(0, 0, 0)
    assert counted.calls() == {Call("all_reduce", 40, 2): 3, Call("all_reduce", 40, 4): 1}


def test_the_summary_is_a_table_by_phase_axis_and_op(group: Any) -> None:
    with Ledger(names={"data": WORLD, "tensor": PAIR}) as counted:
        with counted.phase("forward"):
            dist.all_reduce(f(1000), group=group)
            dist.all_reduce(f(1000), group=group)
        dist.all_gather_into_tensor(f(16), f(4))
    assert counted.summary().splitlines() == [
        "phase    axis    op          count  payload B  wire B",
        "forward  tensor  all_reduce      2      8,000   8,000",
        "-        data    all_gather      1         64      48",
    ]
