"""The model that every contestant trains: the grammar tutor, and the same at other hidden sizes."""

from typing import Any

import torch
from torch import Tensor

from shardlab.gpt.model import GPTConfig

BATCH, SEQUENCE, VOCAB, LAYERS, HEADS = 4, 128, 1024, 4, 4
HIDDEN = 128  # the tutor's own


def config(hidden: int = HIDDEN, **choices: Any) -> GPTConfig:
    """4 layers, 4 heads, sequence 128, vocabulary 1,024, tied embeddings, fp32; or `choices`."""
    sizes = {"layers": LAYERS, "hidden": hidden, "heads": HEADS, "vocab": VOCAB}
    return GPTConfig(**(sizes | {"sequence": SEQUENCE} | choices))


def batch(device: torch.device, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Tokens and targets [B, S], the same wherever the seed is the same."""
    generator = torch.Generator().manual_seed(seed)
    tokens_BS = torch.randint(VOCAB, (BATCH, SEQUENCE), generator=generator).to(device)
    return tokens_BS, tokens_BS.roll(-1, 1)
