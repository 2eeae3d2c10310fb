"""megatron-core 0.16.1 on any device: every shim that the oracle needs stands in this file.

Megatron's code expects CUDA in a handful of places where nothing but a device name is at stake.
Each shim answers with what was torch's default device when the context was entered (`with
world.device:` sets it) and changes no arithmetic:

- `torch.cuda.current_device` and `Tensor.cuda`: buffers are made, and tied embeddings moved, there
  (tensor_parallel/mappings.py, distributed/param_and_grad_buffer.py, language_module.py).
- the CUDA RNG tracker: attention and embedding dropout fork it even where dropout is 0.
- the norm: torch's is refused under sequence parallelism (transformer/torch_norm.py), apex's is not
  here. Ours marks its parameters as apex's does, so that Megatron finishes their gradients itself.
- `device="cuda"` written out (pipeline_parallel/schedules.py).
- `torch.cuda.synchronize` after a batch of sends and receives (p2p_communication.py).
- `fused_weight_gradient_mlp_cuda`: the kernel behind gradient accumulation fusion, as two lines.

Dimensions: S sequence, B batch, H hidden, V vocabulary; lower case where sharded.
"""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from sys import getrefcount
from threading import Thread
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor, nn

# Megatron decorates its fused operations with torch.compile, which loads the whole of inductor, for
# seconds; none of them runs here.
with warnings.catch_warnings(), patch.object(torch, "compile", lambda function: function):
    warnings.simplefilter("ignore")  # that apex and Transformer Engine are not installed
    from megatron.core import package_info, parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.distributed.finalize_model_grads import finalize_model_grads
    from megatron.core.enums import ModelType
    from megatron.core.fusions.fused_bias_gelu import bias_gelu
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.pipeline_parallel import schedules
    from megatron.core.tensor_parallel import (
        ColumnParallelLinear,
        RowParallelLinear,
        VocabParallelEmbedding,
        layers,
        mappings,
        random,
    )
    from megatron.core.tensor_parallel.cross_entropy import vocab_parallel_cross_entropy
    from megatron.core.transformer import transformer_block
    from megatron.core.transformer.spec_utils import ModuleSpec, build_module
    from megatron.core.transformer.transformer_config import TransformerConfig

# Who uses it takes Megatron's names from here, so that it is loaded as above whoever comes first.
__all__ = [
    "ColumnParallelLinear",
    "DistributedDataParallel",
    "DistributedDataParallelConfig",
    "GPTModel",
    "ModelType",
    "Norm",
    "RowParallelLinear",
    "TransformerConfig",
    "VocabParallelEmbedding",
    "bias_gelu",
    "build_module",
    "config",
    "finalize_model_grads",
    "layer_spec",
    "mappings",
    "megatron",
    "package_info",
    "parallel_state",
    "schedules",
    "vocab_parallel_cross_entropy",
]


class Instead:
    """A module of torch's, but for the names that are given."""

    def __init__(self, module: Any, **names: Any) -> None:
        self.__dict__.update(names)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


# Stands in for CudaRNGStatesTracker: dropout is off wherever Megatron is the oracle.
_NO_TRACKER = SimpleNamespace(fork=lambda name="": nullcontext(), is_initialized=lambda: True)


class Norm:
    """The config's norm as torch has it, built as a layer spec asks and marked as apex's are."""

    def __new__(  # type: ignore[misc]  # a spec takes a class, and torch's norms differ
        cls, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any
    ) -> nn.LayerNorm | nn.RMSNorm:
        """Return the norm."""
        kind = nn.RMSNorm if config.normalization == "RMSNorm" else nn.LayerNorm
        norm = kind(hidden_size, eps)
        for parameter in norm.parameters():
            parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
        return norm


def _accumulate(x: Tensor, grad: Tensor, main_grad: Tensor) -> None:
    main_grad += grad.t() @ x  # what apex's kernel computes in one pass


# What the extension module offers to layers.py.
_FUSED_WGRAD = SimpleNamespace(wgrad_gemm_accum_fp32=_accumulate, wgrad_gemm_accum_fp16=_accumulate)


@contextmanager
def megatron(tensor: int = 1, pipeline: int = 1, **sizes: Any) -> Iterator[None]:
    """Megatron's parallel state over the default group, with the shims; all undone at the end.

    Every rank of the default group enters. `sizes` goes to `initialize_model_parallel`. The groups
    are really destroyed: Megatron's own `destroy_model_parallel` forgets them, with their threads.
    """
    device = torch.get_default_device()
    # The CPU has nothing to wait for.
    on_gpu = device.type == "cuda"
    synchronize = torch.cuda.synchronize if on_gpu else lambda *_: None
    current_device = torch.cuda.current_device if on_gpu else lambda: device

    def zeros(*size: Any, **options: Any) -> Tensor:
        return torch.zeros(*size, **(options | {"device": device}))

    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # deprecated collectives, CUDA_DEVICE_MAX_CONNECTIONS
        for target, name, shim in [
            (torch.cuda, "current_device", current_device),
            (torch.cuda, "synchronize", synchronize),
            (torch.Tensor, "cuda", lambda x, *_, **__: x.to(device)),
            (schedules, "torch", Instead(torch, zeros=zeros)),
            (random, "_CUDA_RNG_STATE_TRACKER", _NO_TRACKER),
            (random, "_CUDA_RNG_STATE_TRACKER_INITIALIZED", True),
            (layers, "_grad_accum_fusion_available", True),
            (transformer_block, "LayerNormImpl", Norm),
        ]:
            stack.enter_context(patch.object(target, name, shim))
        stack.enter_context(
            patch.object(layers, "fused_weight_gradient_mlp_cuda", _FUSED_WGRAD, create=True)
        )
        parallel_state.initialize_model_parallel(
            tensor, pipeline, create_gloo_process_groups=False, **sizes
        )
        # A rank whose connections stand may compute, end and close them before another, which waits
        # for a processor, has seen that they stood; it would take them for broken.
        dist.barrier()
        try:
            yield
        finally:
            _retire(parallel_state._global_process_group_list or [])


# Destroyed groups, which a model may still hold, though it is garbage itself.
_RETIRED: list[dist.ProcessGroup] = []


def _retire(groups: list[Any]) -> None:
    """Forget the parallel state, and destroy its groups.

    With the last reference to one gloo closes its connections, and each waits for its thread's next
    look, in up to ten milliseconds: among eight ranks half a second for Megatron's eighteen groups,
    if they go one by one, or wherever the garbage collector finds a model that held them. So they
    stay here for as long as anyone else holds them, and then go side by side.
    """
    parallel_state.destroy_model_parallel()
    while groups:
        if isinstance(group := groups.pop(), dist.ProcessGroup):
            dist.destroy_process_group(group)
            _RETIRED.append(group)
        del group
    free = [group for group in _RETIRED if getrefcount(group) <= 3]  # the list, `group`, the call
    _RETIRED[:] = [group for group in _RETIRED if group not in free]
    threads = [Thread(target=free.pop) for _ in free]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def config(
    *, dtype: torch.dtype = torch.float64, hidden: int, heads: int = 0, depth: int = 1,
    **settings: Any,
) -> TransformerConfig:  # fmt: skip
    """A TransformerConfig without dropout; the grid comes from the parallel state."""
    tensor = parallel_state.get_tensor_model_parallel_world_size()
    defaults = {
        "num_layers": depth,
        "hidden_size": hidden,
        "num_attention_heads": heads or tensor,  # the least that it accepts
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "params_dtype": dtype,
        "pipeline_dtype": dtype,
        "use_cpu_initialization": True,
        "tensor_model_parallel_size": tensor,
        "pipeline_model_parallel_size": parallel_state.get_pipeline_model_parallel_world_size(),
    }
    return TransformerConfig(**(defaults | settings))


def layer_spec() -> ModuleSpec:
    """Megatron's local layer spec (no Transformer Engine) with the norm above."""
    spec = get_gpt_layer_local_spec()
    spec.submodules.input_layernorm = Norm
    spec.submodules.pre_mlp_layernorm = Norm
    return spec
