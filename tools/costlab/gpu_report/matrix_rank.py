"""A rank of the matrix stage: one combination beside the plain step.

python -m costlab.gpu_report matrix_rank cuda|cpu [compile] [autocast] [checkpoint]
"""

import json
import shutil
from contextlib import nullcontext
from typing import Any

import torch
import torch._inductor.config
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from shardlab.comm import World
from shardlab.gpt.block import Block
from shardlab.gpt.model import GPT, GPTConfig

CONFIG = GPTConfig(layers=2, hidden=128, heads=4, vocab=256, sequence=64, dropout=0.1)
BATCH = 4


class Recomputed(torch.nn.Module):
    """A block that keeps its input alone, and runs again in backward."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.block = block

    def forward(self, x_sBH: Tensor) -> Tensor:
        """Run the block."""
        out_sBH: Tensor = checkpoint(self.block, x_sBH, use_reentrant=False)
        return out_sBH


def step(world: World, ways: tuple[str, ...]) -> tuple[float, list[Tensor]]:
    """Run one forward and backward pass; return the loss, and every gradient of this rank."""
    axis = world.axis("tensor", range(world.size))
    model = GPT(CONFIG, tensor=axis, device=world.device)
    parameters = list(model.parameters())
    words_BS = torch.arange(BATCH * (CONFIG.sequence + 1)).view(BATCH, -1).to(world.device)
    words_BS = words_BS * 7919 % CONFIG.vocab
    if "checkpoint" in ways:
        for name, block in model.layers.items():
            model.layers[name] = Recomputed(block)  # type: ignore[arg-type]
    run: Any = model
    if "compile" in ways:
        # Without a C++ compiler the processor has no inductor; what traces is tried all the same.
        inductor = world.device.type == "cuda" or shutil.which("g++")
        if world.device.type == "cuda":
            # A pool of compiling processes takes longer to start than these graphs' Triton kernels.
            torch._inductor.config.compile_threads = 1
        run = torch.compile(model, backend="inductor" if inductor else "aot_eager")
    low = torch.autocast(world.device.type, torch.bfloat16) if "autocast" in ways else nullcontext()
    with low:
        logits_SBv = run(words_BS[:, :-1])
        loss = model.loss(logits_SBv.float(), words_BS[:, 1:])
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.item(), [p.grad.float() for p in parameters if p.grad is not None]


def main(device: str, *ways: str) -> None:
    """Compare; rank 0 prints one JSON object."""
    torch.set_num_threads(1)
    backend = "gloo" if device == "cpu" else None
    with World.join(backend=backend, share_gpus=True) as world:
        # On a GPU bf16 takes another fused kernel than fp32, which drops other weights at one seed.
        kernel = sdpa_kernel(SDPBackend.MATH) if "autocast" in ways else nullcontext()
        with kernel:
            plain, expected = step(world, ())
            loss, gradients = step(world, ways)
        scale = max(float(g.abs().max()) for g in expected)
        worst = max(float((a - b).abs().max()) for a, b in zip(gradients, expected, strict=True))
        limit = 5e-2 if "autocast" in ways else 1e-4
        result = {
            "loss": abs(loss - plain) / plain, "gradients": worst / scale, "limit": limit,
            "good": abs(loss - plain) / plain < limit and worst / scale < limit,
        }  # fmt: skip
    if world.rank == 0:
        print(json.dumps(result))
