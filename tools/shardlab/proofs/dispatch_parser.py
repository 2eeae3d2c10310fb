"""Parses the operators of PyTorch's dispatcher into collectives.

Every collective, of our code, Megatron, DTensor, FSDP or DDP's reducer in C++, goes through
PyTorch's dispatcher as an operator of `c10d` or `_c10d_functional`. The same collective has several
forms: a list, a flat buffer, in place, with `out` or coalesced. Here every form becomes a
`Request`. An unknown form raises an error, because a count that misses collectives is wrong.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

NAMESPACES = frozenset(
    {"c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "symm_mem"}
)

# An operator's name without its variant: (collective, the argument whose bytes are measured). The
# argument is the whole payload, or one rank's share of it if `×ranks` follows.
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
    """One collective, or one end of a point-to-point, that an operator starts.

    Attributes:
        op: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, gather, scatter,
            send, recv or barrier.
        payload: bytes, as nccl-tests counts them: the gathered output, the whole reduced input.
        ranks: global ranks of the group; (source, destination) for a point-to-point.
        group: the process group's name, "" if it has none.
        dtype: the dtype of the (first) tensor.

    """

    op: str
    payload: int
    ranks: tuple[int, ...]
    group: str
    dtype: torch.dtype


def parse_requests(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Request]:
    """Return the collectives that the operator `func` starts with these arguments, mostly one.

    Raises:
        NotImplementedError: the operator is unknown.

    """
    name = func._schema.name.partition("::")[2].strip("_")
    if name in _NO_COMMUNICATION:
        return []
    arguments = {a.name: value for a, value in zip(func._schema.arguments, args, strict=False)}
    arguments.update(kwargs)
    if name == "batch_p2p_ops":
        group = _process_group(arguments)
        operations = zip(
            arguments["op_list"], arguments["peer_list"], arguments["tensors"], strict=True
        )
        return [
            _parse_point_to_point(operation[1:], group, peer, x)
            for operation, peer, x in operations
        ]
    return [_parse_request(func, name, arguments)]


def _parse_request(func: Any, name: str, arguments: Mapping[str, Any]) -> Request:
    forms = _IN_PLACE if func.namespace == "c10d" else _FUNCTIONAL
    form = forms.get(name) or forms.get(name.removesuffix("_coalesced").removesuffix("_out"))
    if form is None:
        raise NotImplementedError(
            f"the ledger does not know {func}, so its count would be wrong; add its form to "
            "shardlab/proofs/dispatch_parser.py, or leave the ledger for this part of the run"
        )
    op, measured = form
    measured, _, times = measured.partition(" ")
    # A coalesced operator's argument has the plain operator's name in the plural.
    tensors = list(
        _iterate_tensors(
            arguments[measured] if measured in arguments else arguments[measured + "s"]
        )
    )
    group = _process_group(arguments)
    if op in ("send", "recv"):
        peer = arguments.get("dst", arguments.get("src"))
        if func.namespace == "c10d":  # counts within the group, the functional forms globally
            peer = None if peer is None else dist.get_global_rank(group, peer)
        return _parse_point_to_point(op, group, peer, *tensors)
    ranks = tuple(dist.get_process_group_ranks(group))
    share = 0 if op == "barrier" else len(ranks) if times else 1
    payload = share * sum(x.nbytes for x in tensors)
    return Request(op, payload, ranks, _group_name(group), tensors[0].dtype)


def _parse_point_to_point(op: str, group: Any, peer: int | None, *tensors: Tensor) -> Request:
    here = dist.get_rank()
    if peer is None:  # a receive from any source
        ranks: tuple[int, ...] = (here,)
    else:
        ranks = (here, peer) if op == "send" else (peer, here)
    return Request(op, sum(x.nbytes for x in tensors), ranks, _group_name(group), tensors[0].dtype)


def _process_group(arguments: Mapping[str, Any]) -> Any:
    if "process_group" in arguments:
        return dist.ProcessGroup.unbox(arguments["process_group"])
    group = arguments["group_name"]
    if isinstance(group, str):
        return torch._C._distributed_c10d._resolve_process_group(group)  # type: ignore[arg-type]
    return group


def _group_name(group: Any) -> str:
    """Return the group's description; "" for torch's "undefined"."""
    name: str = group.group_desc
    return {"undefined": "", "default_pg": "world"}.get(name, name)


def _iterate_tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    else:
        for each in value:
            yield from _iterate_tensors(each)
