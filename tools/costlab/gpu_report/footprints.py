"""What a step of our model holds on one GPU, beside what `tools/bench fits` says of it.

Larger and larger micro-batches, until one doesn't fit. The first calibrates `fits` for the others,
as `--measured` does.
"""

import gc
from collections.abc import Mapping
from typing import Any

import torch

from costlab.gpu_report.report import seconds_left, tell
from costlab.gpu_report.throughput import draw_model
from costlab.layouts.model import Model, Plan
from costlab.layouts.stack_memory import GIB, estimate, worst_rank
from shardlab.gpt.config import LLAMA
from shardlab.gpt.model import GPTConfig

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


def main(kind: str) -> None:
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
