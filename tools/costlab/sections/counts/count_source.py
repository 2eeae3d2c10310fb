"""What the installed sources hold or refuse: asked of them, not remembered."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from torch.distributed import fsdp

from costlab.record.result import Metric
from costlab.sections.metrics import counted

# What summaries of newer versions name.
NEWER = ("dp_cp_ag_group", "expt_dp_ag_group", "for_expert_parallelism")


def pytorch() -> Iterator[Metric]:
    """Names and defaults of the installed PyTorch's FSDP."""
    files = sorted(Path(str(fsdp.__file__)).parent.glob("*.py"))
    text = "\n".join(path.read_text("utf-8") for path in files)
    for name in ("_handles_prefetched", "_prefetched"):
        yield counted(f"fsdp-source.{_dashed(name)}", _times(name, text))
    defaults = inspect.signature(fsdp.FullyShardedDataParallel).parameters
    for name in ("backward_prefetch", "forward_prefetch"):
        default = defaults[name].default
        yield counted(f"fsdp-source.{_dashed(name)}-on", bool(default), default=str(default))


def megatron() -> Iterator[Metric]:
    """Names and docstrings of the installed Megatron, a refusal, and what its FSDP cuts."""
    from costlab.implementations.megatron import package_info

    core = Path(str(package_info.__file__)).parent
    layers = ast.parse((core / "tensor_parallel" / "layers.py").read_text("utf-8"))
    yield counted("layers-source.docstring-words", len((ast.get_docstring(layers) or "").split()))
    yield counted("sp-without-tp.refused", _refused())
    state = (core / "parallel_state.py").read_text("utf-8")
    for name in (*NEWER, "create_all_gather_group"):
        yield counted(f"megatron-source.{_dashed(name)}", _times(name, state))
    yield from _megatron_fsdp(core)


def _megatron_fsdp(core: Path) -> Iterator[Metric]:
    """Of parameters, gradients and optimizer state: how many each strategy of Megatron-FSDP cuts.

    Read from the branch that decides it: its buffers want CUDA, which is not everywhere.
    """
    from costlab.implementations.megatron import DistributedDataParallelConfig

    path = core / "distributed" / "fsdp" / "src" / "megatron_fsdp" / "param_and_grad_buffer.py"
    cut: dict[str, int] = {}
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.If(
                test=ast.Compare(
                    left=ast.Name("data_parallel_sharding_strategy"),
                    comparators=[ast.Constant(str(strategy))],
                )
            ):
                defaults = [line.value for line in node.body if isinstance(line, ast.Assign)]
                buffers = [value.value for value in defaults if isinstance(value, ast.Constant)]
                if len(buffers) == 3:  # of weights, of main weights (the optimizer's), of gradients
                    cut[strategy] = sum(map(bool, buffers))
    default = DistributedDataParallelConfig().data_parallel_sharding_strategy
    cut["default"] = cut.get(default, -1)
    for strategy, count in cut.items():
        yield counted(f"megatron-fsdp-source.{_dashed(strategy)}.cut", count, strategy=default)


def _times(name: str, text: str) -> int:
    return len(re.findall(rf"\b{name}\b", text))


def _dashed(name: str) -> str:
    return name.strip("_").replace("_", "-")


def _refused() -> bool:
    """Whether Megatron's configuration refuses sequence parallelism on a tensor axis of one."""
    from megatron.core.model_parallel_config import ModelParallelConfig

    from costlab.implementations import megatron  # noqa: F401  (loads Megatron without inductor)

    try:
        ModelParallelConfig(sequence_parallel=True, tensor_model_parallel_size=1)
    except ValueError:
        return True
    return False
