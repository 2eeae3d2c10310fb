"""Megatron's MoELayer on any device: the shims that its experts need beyond the package's own.

None changes any arithmetic:

- CUDA streams and events, which the all-to-all dispatcher copies its row counts on: nothing to
  wait for on a CPU (token_dispatcher.py, shared_experts.py).
- `maybe_move_tensor_to_cpu` turns counts into numpy for the collective where they come from a GPU;
  those of a CPU would stay tensors, which torch's collective refuses.
- `te_general_gemm`, which moe_utils.py asks for by name where Transformer Engine is not installed.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from costlab.implementations import megatron as mcore

with warnings.catch_warnings(), patch.object(torch, "compile", lambda function: function):
    warnings.simplefilter("ignore")  # that Transformer Engine is not installed
    from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec
    from megatron.core.transformer.moe import moe_utils, shared_experts, token_dispatcher

_TYPES = {"all-to-all": "alltoall", "all-gather": "allgather"}


# What has nothing to wait for, with an event that has happened.
_EVENT = SimpleNamespace(synchronize=lambda: None)
_STREAM = SimpleNamespace(wait_stream=lambda stream: None, record_event=lambda: _EVENT)
_CUDA = mcore.Instead(
    torch.cuda, Stream=lambda: _STREAM, current_stream=lambda: _STREAM, stream=nullcontext
)
_TORCH = mcore.Instead(torch, cuda=_CUDA)


def _to_cpu(tensor: Any, as_numpy: bool = False, record_stream: bool = False) -> Any:
    return tensor.cpu().numpy() if as_numpy and isinstance(tensor, Tensor) else tensor


@contextmanager
def megatron(**sizes: Any) -> Iterator[None]:
    """`megatron.megatron`, and the shims above where there is no GPU."""
    with ExitStack() as stack:
        stack.enter_context(mcore.megatron(**sizes))
        stack.enter_context(patch.object(moe_utils, "te_general_gemm", None, create=True))
        if torch.get_default_device().type == "cpu":
            dispatcher = token_dispatcher.MoEAlltoAllTokenDispatcher
            for target, name, shim in [
                (token_dispatcher, "torch", _TORCH),
                (shared_experts, "torch", _TORCH),
                (token_dispatcher, "maybe_move_tensor_to_cpu", _to_cpu),
                (dispatcher, "cuda_dtoh_stream", None),
            ]:
                stack.enter_context(patch.object(target, name, shim))
        yield


def config(
    *, hidden: int, experts: int, top_k: int, ffn: int, expert: int = 1, expert_tensor: int = 1,
    dispatch: str = "all-to-all", **settings: Any,
) -> Any:  # fmt: skip
    """A TransformerConfig with experts; `expert` and `expert_tensor` are sizes of its groups."""
    return mcore.config(
        hidden=hidden,
        num_moe_experts=experts,
        moe_router_topk=top_k,
        moe_ffn_hidden_size=ffn,
        expert_model_parallel_size=expert,
        expert_tensor_parallel_size=expert_tensor,
        moe_token_dispatcher_type=_TYPES[dispatch],
        **settings,
    )


def layer(config: Any) -> nn.Module:
    """A MoELayer with SequentialMLP; Megatron's parallel state must stand."""
    spec = get_moe_module_spec(use_te=False, num_experts=config.num_moe_experts)
    layer_module: nn.Module = mcore.build_module(spec, config=config)
    return layer_module.to(torch.get_default_device(), config.params_dtype)


def names(layer: nn.Module, first: int) -> dict[str, str]:
    """Our names of a layer's parameters → Megatron's, whose experts count from `first` here."""
    fixed = {
        "router.weight": "router.weight",
        "router.bias": "router.bias",
        "shared_experts.gate_weight": "shared_gate",
    }
    our_names = {}
    for their_name, _ in layer.named_parameters():
        parts = their_name.split(".")
        if parts[0] == "experts":
            our_names[f"experts.{int(parts[2]) + first}.{parts[3][7:]}.{parts[4]}"] = their_name
        elif their_name in fixed:
            our_names[fixed[their_name]] = their_name
        else:
            our_names[f"shared.{parts[1][7:]}.{parts[2]}"] = their_name
    return our_names


def copy(values: Mapping[str, Tensor], to: nn.Module, first: int) -> None:
    """Give a MoELayer this rank's values, by our names."""
    with torch.no_grad():
        for ours, their_name in names(to, first).items():
            to.get_parameter(their_name).copy_(values[ours])
