"""What the installed sources hold or refuse: asked of them, not remembered."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

from costlab.counted import counted
from costlab.result import Metric


def facts() -> Iterator[Metric]:
    """Names that PyTorch's FSDP has, a docstring, and what Megatron's configuration refuses."""
    folder = _folder("torch.distributed.fsdp")
    if folder:
        text = "\n".join(path.read_text("utf-8") for path in sorted(folder.glob("*.py")))
        for name in ("_handles_prefetched", "_prefetched"):
            found = len(re.findall(rf"\b{name}\b", text))
            yield counted(f"fsdp-source.{name.strip('_').replace('_', '-')}", found)
    layers = _folder("megatron.core.tensor_parallel")
    if layers:
        docstring = ast.get_docstring(ast.parse((layers / "layers.py").read_text("utf-8")))
        yield counted("layers-source.docstring-words", len((docstring or "").split()))
        yield counted("sp-without-tp.refused", _refused())


def _refused() -> bool:
    """Whether Megatron's configuration refuses sequence parallelism on a tensor axis of one."""
    from megatron.core.model_parallel_config import ModelParallelConfig

    from costlab.contestants import megatron  # noqa: F401  (loads Megatron without inductor)

    try:
        ModelParallelConfig(sequence_parallel=True, tensor_model_parallel_size=1)
    except ValueError:
        return True
    return False


def _folder(package: str) -> Path | None:
    """Return where a package lies; None where it isn't installed."""
    try:
        found = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return None
    return Path(found.origin).parent if found and found.origin else None
