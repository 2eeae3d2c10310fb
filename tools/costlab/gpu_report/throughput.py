"""How fast one device trains our GPT in bf16 (tokens/s, model FLOPs utilisation), and its memory.

Model FLOPs are 6 a parameter and token, and 12·layers·H·S a token for attention (causality not
counted off), as Megatron-LM and PaLM's appendix B count them; recomputation would not count.

`measure_footprints` says what a step holds, beside what `tools/bench fits` says of it: larger and
larger micro-batches, until one doesn't fit. The first calibrates `fits` for the others, as
`--measured` does.
"""

import gc
import statistics
import sys
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from costlab.gpu_report.report import seconds_left, tell
from costlab.layouts.model import Model, Plan
from costlab.layouts.stack_memory import GIB, estimate, worst_rank
from shardlab.comm import Axis
from shardlab.gpt.config import LLAMA
from shardlab.gpt.model import GPT, GPTConfig

BATCH = {"cuda": 8, "cpu": 2}
MODELS = {
    "cuda": GPTConfig(layers=16, hidden=2048, heads=16, vocab=50304, sequence=2048,
                      dtype=torch.bfloat16, tie_embeddings=False),
    "cpu": GPTConfig(layers=2, hidden=128, heads=4, vocab=1024, sequence=128,
                     dtype=torch.bfloat16, tie_embeddings=False),
}  # fmt: skip
# Dense bf16 products a second, as the makers' data sheets state them.
PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "4090": 165e12}
STEPS = 12


def measure_throughput(kind: str, *more: str) -> None:
    """Train on one batch; print a line."""
    torch.manual_seed(0)
    device = torch.device(kind)
    config, batch = MODELS[kind], BATCH[kind]
    model = draw_model(config, device)
    if "--fused" in more:
        from shardlab.layers.matmul import fuse

        fuse(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=kind == "cuda")
    words_BS = torch.randint(config.vocab, (batch, config.sequence + 1), device=device)
    seconds, allocated = timed(model, optimizer, words_BS, kind)
    line = summary(config, batch, sum(p.numel() for p in model.parameters()), seconds, kind)
    print(line + (memory(allocated, torch.cuda.max_memory_allocated()) if kind == "cuda" else ""))


def draw_model(config: GPTConfig, device: torch.device) -> GPT:
    """Return a model whose values are drawn where it runs: a billion take one CPU thread 20 s.

    Raises:
        ValueError: its embeddings are tied: `to_empty` makes two parameters of one.
    """
    if config.tie_embeddings:
        raise ValueError(
            "a model with tied embeddings can't be drawn from meta: to_empty unties them"
        )
    model = GPT(config, tensor=Axis.alone(), device="meta").to_empty(device=device)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=config.init_std)
        else:
            torch.nn.init.constant_(parameter, float(name.endswith("weight")))
    return model


def timed(
    model: GPT, optimizer: torch.optim.Optimizer, words_BS: Tensor, kind: str
) -> tuple[list[float], int]:
    """Return the seconds of each step after the third, and the bytes held between steps."""
    seconds, first, loss, allocated = [], 0.0, torch.tensor(0.0), 0
    for step in range(STEPS):
        wait(kind)
        began = time.perf_counter()
        loss = model.loss(model(words_BS[:, :-1]), words_BS[:, 1:])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        wait(kind)
        seconds.append(time.perf_counter() - began)
        first = first or loss.item()
        if step == 2 and kind == "cuda":  # AdamW's state is there since the first
            allocated = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
    if not loss.item() < first:
        sys.exit(f"the loss went from {first:.3f} to {loss.item():.3f} on one batch")
    return seconds[3:], allocated


def summary(config: GPTConfig, batch: int, parameters: int, seconds: list[float], kind: str) -> str:
    """Return what was measured, in a line: the median of the steps, and their extremes."""
    typical, tokens = statistics.median(seconds), batch * config.sequence
    flops = tokens * (6 * parameters + 12 * config.layers * config.hidden * config.sequence)
    words = [
        f"{parameters / 1e6:.0f} M parameters, {batch} × {config.sequence} tokens",
        f"{tokens / typical:,.0f} tokens/s",
        f"{1e3 * typical:.1f} ms a step ({1e3 * min(seconds):.1f} to {1e3 * max(seconds):.1f}, "
        f"n = {len(seconds)})",
        f"{flops / typical / 1e12:.2f} TFLOP/s",
    ]
    if kind == "cuda":
        name = torch.cuda.get_device_name()
        peak = next((flops for part, flops in PEAKS.items() if part in name), None)
        words.append(f"MFU {flops / typical / peak:.1%} of {name}" if peak else f"on {name}")
    return "; ".join(words)


def memory(allocated: int, peak: int) -> str:
    """Return, in words, the peak and what of it a step adds to what lies there between steps."""
    return (
        f"; peak memory {peak / 2**30:.1f} GiB: {allocated / 2**30:.1f} between steps (weights, "
        f"optimizer), {(peak - allocated) / 2**30:.1f} of a step's own"
    )


def wait(kind: str) -> None:
    """Let the device finish."""
    if kind == "cuda":
        torch.cuda.synchronize()


BYTES: dict[str, Any] = {"activation": 2, "weight": 2, "gradient": 2, "optimizer": 4}  # all bf16
SIZES = {
    "cuda": {"layers": 16, "hidden": 2048, "heads": 16, "vocab": 50304},
    "cpu": {"layers": 2, "hidden": 128, "heads": 4, "vocab": 1024},
}
KINDS: dict[str, Mapping[str, Any]] = {
    "GPT": {}, "Llama": LLAMA | {"kv_heads": 4, "ffn": 5632},
}  # fmt: skip
CASES = [  # micro-batch, tokens: by kind, the larger the later
    ("GPT", 1, 2048), ("GPT", 4, 2048), ("GPT", 8, 2048), ("GPT", 1, 16384), ("Llama", 8, 2048),
    ("Llama", 1, 32768), *(("GPT", batch, 2048) for batch in range(16, 65, 4)),
]  # fmt: skip


def measure_footprints(kind: str) -> None:
    """Tell each case's bytes, measured and counted."""
    total = torch.cuda.mem_get_info()[1] if kind == "cuda" else 0
    own: list[tuple[Mapping[str, float], float]] = []
    for name, batch, tokens in CASES if kind == "cuda" else [("GPT", 1, 128), ("Llama", 2, 64)]:
        if seconds_left(0.9) < 10:
            break
        what = f"memory of {name}, {batch} × {tokens} tokens"
        config = configured(KINDS[name], tokens, kind)
        rank = worst_rank(*described(config, batch, tokens))
        says = estimate(rank, own)
        words = f"fits counts {says.counted / GIB:.2f} GiB"
        words += f", {says.low / GIB:.1f} to {says.high / GIB:.1f}: {says.verdict(total)}"
        try:
            peak, used = measured(config, batch, tokens, kind)
        except torch.OutOfMemoryError:
            tell(what, f"ran out of memory; {words}", ok=says.verdict(total) != "fits")
            break
        own = own or ([(rank, used)] if used else [])
        seen = f"peak {peak / GIB:.2f} GiB, the card holds {used / GIB:.2f}; {words}"
        tell(what, seen, ok=not used or says.verdict(total) != "does not fit")


def configured(settings: Mapping[str, Any], tokens: int, kind: str) -> GPTConfig:
    """Return a model of the device's size."""
    sizes: dict[str, Any] = {**SIZES[kind], "tie_embeddings": False, **settings}
    return GPTConfig(**sizes, sequence=tokens, dtype=torch.bfloat16)


def described(config: GPTConfig, batch: int, tokens: int) -> tuple[Model, Plan]:
    """Return the model and the plan as `fits` knows them."""
    model = Model(
        layers=config.layers, hidden=config.hidden, heads=config.heads, kv_heads=config.groups,
        ffn=config.ffn_width, vocabulary=config.vocab, gated=config.gated, norm=config.norm,
        tied=config.tie_embeddings, bias=config.bias,
        positions=tokens * (config.position == "learned"),
    )  # fmt: skip
    return model, Plan(micro_batch=batch, sequence=tokens, global_batch=batch, **BYTES)


def measured(config: GPTConfig, batch: int, tokens: int, kind: str) -> tuple[int, int]:
    """Return the peak of a step, by torch's allocator, and what the card then holds, in bytes."""
    device = torch.device(kind)
    model = draw_model(config, device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=kind == "cuda")
    words_BS = torch.randint(config.vocab, (batch, tokens + 1), device=device)
    try:
        for _ in range(2):  # AdamW's state is there from the second on
            if kind == "cuda":
                torch.cuda.reset_peak_memory_stats()
            model.loss(model(words_BS[:, :-1]), words_BS[:, 1:]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
        if kind != "cuda":
            return 0, 0
        free, total = torch.cuda.mem_get_info()
        return torch.cuda.max_memory_allocated(), total - free
    finally:
        del model, optimizer, words_BS
        gc.collect()
        if kind == "cuda":
            torch.cuda.empty_cache()
