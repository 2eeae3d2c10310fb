"""PyTorch's own tensor parallelism as an oracle: a plain GPT that DTensor shards from outside.

`WholeGPT` is written with torch's modules alone, with our parameters' names and Megatron's layout
(QKV rows per query group, pre-norm, exact GELU, learned positions). `tensor_parallel` then applies
`parallelize_module` (torch/distributed/tensor/parallel/api.py) to it.

Dimensions: S sequence, B batch, H hidden, F 4·H, V vocabulary, G query groups, D head; lower case
where sharded.
"""

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional

from shardlab.gpt.config import GPTConfig


class WholeAttention(nn.Module):
    """Causal self-attention with grouped queries; rows of `qkv` are [q…, k, v] group by group."""

    def __init__(self, hidden: int, heads: int, groups: int) -> None:
        super().__init__()
        self.head, self.queries = hidden // heads, heads // groups
        self.qkv = nn.Linear(hidden, (heads + 2 * groups) * self.head)
        self.proj = nn.Linear(hidden, hidden)

    def forward(self, x_SBH: Tensor) -> Tensor:
        """Attend; [S, B, H] to [S, B, H]."""
        qkv = self.qkv(x_SBH)  # a local tensor, also where DTensor shards the weight
        sequence, batch = qkv.shape[:2]
        qkv = qkv.view(sequence, batch, -1, self.queries + 2, self.head)
        q, k, v = qkv.split([self.queries, 1, 1], dim=3)
        q, k, v = (t.flatten(2, 3).permute(1, 2, 0, 3) for t in (q, k, v))  # [B, heads, S, D]
        out = functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=self.queries > 1
        )
        return self.proj(out.permute(2, 0, 1, 3).flatten(2))  # type: ignore[no-any-return]


class WholeBlock(nn.Module):
    """Pre-norm block: attention, then a GELU feed-forward."""

    def __init__(self, hidden: int, heads: int, groups: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attention = WholeAttention(hidden, heads, groups)
        up, down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.mlp = nn.Sequential(OrderedDict(fc1=up, gelu=nn.GELU(), fc2=down))

    def forward(self, x_SBH: Tensor) -> Tensor:
        """Both residual branches."""
        x_SBH = x_SBH + self.attention(self.norm1(x_SBH))
        return x_SBH + self.mlp(self.norm2(x_SBH))  # type: ignore[no-any-return]


class WholeGPT(nn.Module):
    """A GPT with no parallelism in it."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        hidden = config.hidden
        self.word_embedding = nn.Embedding(config.vocab, hidden)
        self.position_embedding = nn.Parameter(torch.zeros(config.sequence, hidden))
        self.split = nn.Identity()  # where sequence parallelism cuts S
        self.layers = nn.ModuleList(
            WholeBlock(hidden, config.heads, config.groups) for _ in range(config.layers)
        )
        self.final_norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, config.vocab, bias=False)
        self.tied = config.tie_embeddings
        self.tie()
        self.to(config.dtype)

    def tie(self) -> None:
        """Share the weight (again: DTensor makes two parameters of one)."""
        if self.tied:
            self.head.weight = self.word_embedding.weight

    def forward(self, tokens_BS: Tensor) -> Tensor:
        """Return logits [S, B, V]."""
        tokens_SB = tokens_BS.t().contiguous()
        x_SBH = self.word_embedding(tokens_SB)
        x_SBH = x_SBH + self.position_embedding[: tokens_SB.shape[0]].unsqueeze(1)
        x_SBH = self.split(x_SBH)
        for layer in self.layers:
            x_SBH = layer(x_SBH)
        return self.head(self.final_norm(x_SBH))  # type: ignore[no-any-return]


def tensor_parallel(model: WholeGPT, mesh: DeviceMesh, *, sequence_parallel: bool) -> WholeGPT:
    """Shard `model` in place over a mesh of one dimension; its logits become a DTensor over V."""
    inside = Shard(0) if sequence_parallel else Replicate()
    block = {
        "attention.qkv": ColwiseParallel(input_layouts=inside),
        "attention.proj": RowwiseParallel(output_layouts=inside),
        "mlp.fc1": ColwiseParallel(input_layouts=inside),
        "mlp.fc2": RowwiseParallel(output_layouts=inside),
    }
    whole = {
        "word_embedding": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(input_layouts=inside, use_local_output=False),
    }
    if sequence_parallel:
        norm = SequenceParallel(sequence_dim=0)
        block |= {"norm1": norm, "norm2": norm}
        whole |= {
            "final_norm": norm,
            "split": PrepareModuleInput(
                input_layouts=(Replicate(),),
                desired_input_layouts=(Shard(0),),
                use_local_output=True,
            ),
        }
    for layer in model.layers:
        parallelize_module(layer, mesh, block)
    parallelize_module(model, mesh, whole)
    model.tie()
    return model


def whole(x: Tensor) -> Tensor:
    """The logical tensor, gathered or summed where it is a DTensor."""
    return x.full_tensor() if isinstance(x, DTensor) else x
