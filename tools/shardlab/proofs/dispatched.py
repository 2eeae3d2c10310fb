"""What a collective asks for, read from the operator that PyTorch dispatched for it.

Whoever starts it (our own code, Megatron, DTensor, FSDP, DDP's reducer in C++), a collective goes
through PyTorch's dispatcher as an operator of `c10d` or `_c10d_functional`; the same collective
comes as a list, a flat buffer, in place, with `out` or coalesced. Here every form becomes a
`Request`. A form that is not known is refused, since a count that leaves things out is no count.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

NAMESPACES = frozenset(
    {"c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "symm_mem"}
)

# Operator without what marks its variant: (what is asked, the argument that is measured). A
# measured argument is the whole payload, or one rank's share of it where `×ranks` follows.
_IN_PLACE = {
    "allreduce": ("all_reduce", "tensors"),
    "allgather": ("all_gather", "output_tensors"),
    "allgather_coalesced": ("all_gather", "output_lists"),
    "allgather_base": ("all_gather", "output_tensor"),
    "allgather_into_tensor": ("all_gather", "outputs"),
    "reduce_scatter": ("reduce_scatter", "input_tensors"),
    "reduce_scatter_base": ("reduce_scatter", "input_tensor"),
    "reduce_scatter_tensor": ("reduce_scatter", "inputs"),
    "alltoall": ("all_to_all", "input_tensors"),
    "alltoall_base": ("all_to_all", "input"),
    "broadcast": ("broadcast", "tensors"),
    "reduce": ("reduce", "tensors"),
    "gather": ("gather", "input_tensors ×ranks"),
    "gather_into_tensor": ("gather", "input_tensor ×ranks"),  # torch 2.15
    "scatter": ("scatter", "output_tensors ×ranks"),
    "send": ("send", "tensors"),
    "recv": ("recv", "tensors"),
    "recv_any_source": ("recv", "tensors"),
    "barrier": ("barrier", "tensor"),
    "monitored_barrier": ("barrier", "tensor"),
}
_FUNCTIONAL = {
    "all_reduce": ("all_reduce", "input"),
    "all_gather_into_tensor": ("all_gather", "input ×ranks"),
    "reduce_scatter_tensor": ("reduce_scatter", "input"),
    "all_to_all_single": ("all_to_all", "input"),
    "shard_dim_alltoall": ("all_to_all", "input"),
    "broadcast": ("broadcast", "input"),
    "isend": ("send", "tensor"),
    "irecv": ("recv", "tensor"),
}
_NO_COMMUNICATION = frozenset(
    {
        "wait_tensor",
        "wait_tensors",  # torch 2.15
        "wrap_tensor_autograd",
        "check_for_nan",
        "mesh_get_process_group",
    }
)


class Request(NamedTuple):
    """One collective, or one end of a point-to-point, that an operator asks for.

    Attributes:
        op: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, gather, scatter,
            send, recv or barrier.
        payload: bytes, as nccl-tests counts them: the gathered output, the whole reduced input.
        ranks: global ranks of the group; (source, destination) for a point-to-point.
        group: what the process group is called, "" if it has no name.
        dtype: of the (first) tensor.

    """

    op: str
    payload: int
    ranks: tuple[int, ...]
    group: str
    dtype: torch.dtype


def requests(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Request]:
    """Return what the operator `func` asks for with these arguments: mostly one request.

    Raises:
        NotImplementedError: an operator of these namespaces that is not known here.

    """
    name = func._schema.name.partition("::")[2].strip("_")
    if name in _NO_COMMUNICATION:
        return []
    given = {a.name: value for a, value in zip(func._schema.arguments, args, strict=False)}
    given.update(kwargs)
    if name == "batch_p2p_ops":
        group = _group(given)
        ends = zip(given["op_list"], given["peer_list"], given["tensors"], strict=True)
        return [_point_to_point(end[1:], group, peer, x) for end, peer, x in ends]
    return [_request(func, name, given)]


def _request(func: Any, name: str, given: Mapping[str, Any]) -> Request:
    forms = _IN_PLACE if func.namespace == "c10d" else _FUNCTIONAL
    form = forms.get(name) or forms.get(name.removesuffix("_coalesced").removesuffix("_out"))
    if form is None:
        raise NotImplementedError(
            f"the ledger does not know {func}, so its count would be wrong; add its form to "
            "shardlab/proofs/dispatched.py, or leave the ledger for this part of the run"
        )
    op, measured = form
    measured, _, times = measured.partition(" ")
    # A coalesced operator's argument is the plain one's in the plural.
    tensors = list(_flat(given[measured] if measured in given else given[measured + "s"]))
    group = _group(given)
    if op in ("send", "recv"):
        peer = given.get("dst", given.get("src"))
        if func.namespace == "c10d":  # counts within the group, the functional forms globally
            peer = None if peer is None else dist.get_global_rank(group, peer)
        return _point_to_point(op, group, peer, *tensors)
    ranks = tuple(dist.get_process_group_ranks(group))
    share = 0 if op == "barrier" else len(ranks) if times else 1
    payload = share * sum(x.nbytes for x in tensors)
    return Request(op, payload, ranks, _name(group), tensors[0].dtype)


def _point_to_point(op: str, group: Any, peer: int | None, *tensors: Tensor) -> Request:
    here = dist.get_rank()
    if peer is None:  # a receive from whoever sends first
        ranks: tuple[int, ...] = (here,)
    else:
        ranks = (here, peer) if op == "send" else (peer, here)
    return Request(op, sum(x.nbytes for x in tensors), ranks, _name(group), tensors[0].dtype)


def _group(given: Mapping[str, Any]) -> Any:
    if "process_group" in given:
        return dist.ProcessGroup.unbox(given["process_group"])
    group = given["group_name"]
    if isinstance(group, str):
        return torch._C._distributed_c10d._resolve_process_group(group)  # type: ignore[arg-type]
    return group


def _name(group: Any) -> str:
    """Return what its maker called the group; torch has words of its own for those without."""
    name: str = group.group_desc
    return {"undefined": "", "default_pg": "world"}.get(name, name)


def _flat(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    else:
        for each in value:
            yield from _flat(each)
