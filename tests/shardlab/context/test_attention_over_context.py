"""Attention over tokens cut over ranks against whole attention written out, forward and backward.

What breaks shows first here: the slices against Megatron's, then one attention, then each fault.
"""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from torch import Tensor

from shardlab.comm import Axis, World
from shardlab.context import block_attention, zigzag
from shardlab.context.documents import document_ids, document_mask
from shardlab.context.parallel import ContextParallel
from tests.shardlab.reference import relative_error

S, B, D = 16, 2, 4
EXACT = 1e-12
KINDS = ("ring", "all-gather", "ulysses")


def drawn(heads: int, groups: int, tokens: int, dtype: torch.dtype) -> list[Tensor]:
    """Queries, keys, values and the output's gradient of whole sequences."""
    generator = torch.Generator().manual_seed(heads * 100 + tokens)
    shapes = [(B, n, tokens, D) for n in (heads, groups, groups, heads)]
    return [torch.randn(s, dtype=torch.float64, generator=generator).to(dtype) for s in shapes]


def whole(tensors: list[Tensor], documents: Tensor | None) -> list[Tensor]:
    """The output, and the gradients of queries, keys and values, written out."""
    q, k, v = (x.double().clone().requires_grad_() for x in tensors[:3])
    more = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(more, 1).mT / math.sqrt(D)
    at = torch.arange(q.shape[2])
    seen = at.unsqueeze(1) >= at
    if documents is not None:
        seen = (documents.unsqueeze(2) == documents.unsqueeze(1)).unsqueeze(1) & seen
    out = scores.masked_fill(~seen, -math.inf).softmax(-1) @ v.repeat_interleave(more, 1)
    out.backward(tensors[3].double())
    return [out.detach(), *(x.grad for x in (q, k, v))]  # type: ignore[list-item]


def packed(tokens: int) -> Tensor:
    """Documents of two sequences: one begins in the middle of a chunk, one is a single token."""
    documents = document_ids([3, 0, tokens - 4, 1])
    return torch.stack([documents, document_ids([1, tokens - 1])])


def cut(
    world: World, kind: str, heads: int, groups: int, tokens: int, documents: bool,
    dtype: torch.dtype, strided: bool,
) -> float:  # fmt: skip
    """How far this rank's rows are from whole attention's."""
    tensors = drawn(heads, groups, tokens, dtype)
    of = packed(tokens) if documents else None
    expected = whole(tensors, of)
    context = ContextParallel(world.whole, kind)
    rows = zigzag.positions(tokens, world.rank, world.size)
    local = [x[:, :, rows] for x in tensors]
    if strided:  # as the GPT's come: heads and tokens the other way round in memory
        local = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in local]
    q, k, v = (x.requires_grad_() for x in local[:3])
    out = context.attend(q, k, v, of)
    out.backward(local[3])
    actual = [out.detach(), q.grad, k.grad, v.grad]
    return max(
        relative_error(a.double(), b[:, :, rows]) for a, b in zip(actual, expected, strict=True)
    )


@pytest.mark.parametrize("size", [2, 4])
def test_every_kind_is_whole_attention_forward_and_in_all_gradients(pool: Any, size: int) -> None:
    cases = [
        (kind, heads, groups, tokens, documents, torch.float64, strided)
        for kind in KINDS
        for heads, groups, tokens in ((4, 4, S), (8, 4, S), (4, 4, 2 * size))
        for documents, strided in ((False, True), (True, False))
    ]  # fmt: skip
    cases += [(k, 3, 1, S, d, torch.float64, True) for k in KINDS[:2] for d in (False, True)]
    for off in pool(size).run(all_of, cases):
        assert {case: error for case, error in off.items() if not error <= EXACT} == {}


def all_of(world: World, cases: list[tuple[Any, ...]]) -> dict[str, float]:
    return {str(case): cut(world, *case) for case in cases}


def test_bf16_is_as_near_to_whole_attention_as_bf16_can_be(pool: Any) -> None:
    cases = [(k, 4, 2, S, d, torch.bfloat16, True) for k in KINDS for d in (False, True)]
    for off in pool(2).run(all_of, cases):
        assert max(off.values()) < 0.02


def test_the_form_that_other_devices_take_is_torchs_kernel(monkeypatch: Any) -> None:
    q, k, v, g = drawn(8, 4, S, torch.float64)
    seen = document_mask(packed(S))

    def both() -> list[Tensor]:
        results: list[Tensor] = []
        for mask, causal in ((None, True), (None, False), (seen, False)):
            out, lse = block_attention.attend(q, k, v, causal=causal, mask=mask)
            results += [out, lse]
            results += block_attention.gradients(g, q, (k, v), (out, lse), causal=causal, mask=mask)
        return results

    kernels = both()
    monkeypatch.setattr(block_attention, "KERNELS", frozenset())
    errors = [relative_error(a, b) for a, b in zip(both(), kernels, strict=True)]
    assert max(errors) < EXACT


# ------------------------------------------------------------------ which tokens a rank has


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_a_rank_has_the_tokens_that_megatron_core_gives_it(ranks: int, monkeypatch: Any) -> None:
    utils = pytest.importorskip("megatron.core.utils")
    whole_BS = torch.arange(2 * 48).view(2, 48)
    for rank in range(ranks):
        monkeypatch.setattr(utils, "get_pg_size", lambda _: ranks)
        monkeypatch.setattr(utils, "get_pg_rank", lambda _, rank=rank: rank)
        megatron = utils.get_batch_on_this_cp_rank({"tokens": whole_BS}, cp_group=object())
        assert torch.equal(whole_BS[:, zigzag.positions(48, rank, ranks)], megatron["tokens"])
    assert zigzag.order(48, ranks).sort().values.tolist() == [*range(48)]


@pytest.mark.parametrize("ranks", [2, 4])
def test_every_rank_computes_as_much_in_every_step_and_each_seen_pair_once(ranks: int) -> None:
    share = S // ranks
    counted = torch.zeros(S, S, dtype=torch.int64)
    for step in range(ranks):
        pairs = set()
        for rank in range(ranks):
            owner = (rank - step) % ranks
            rows, keys, causal = zigzag.visible_slices(rank, owner, share)
            queries, key_positions = (zigzag.positions(S, r, ranks) for r in (rank, owner))
            block = torch.ones(len(queries[rows]), len(key_positions[keys]), dtype=torch.int64)
            block = block.tril() if causal else block
            pairs.add(int(block.sum()))
            counted[queries[rows].unsqueeze(1), key_positions[keys]] += block
        assert len(pairs) == 1, f"step {step}: {pairs}"
    assert torch.equal(counted, torch.ones(S, S, dtype=torch.int64).tril())


# ------------------------------------------------------------------ what can't be cut


def test_what_cannot_be_cut_is_refused_with_what_could() -> None:
    axis = Axis.alone("context")
    axis.size = 4  # an axis that says its size and can do nothing else
    ring, ulysses = ContextParallel(axis), ContextParallel(axis, "ulysses")
    q = torch.zeros(1, 4, 2, D)
    for words, refused in [
        ("12 tokens don't form them: choose 8 or 16", lambda: ring.shard(torch.zeros(1, 12))),
        ("8 equal chunks, two a rank; 4 tokens", lambda: ring.positions(1)),  # one token a rank
        ("0 tokens don't form them: choose 8", lambda: ring.shard(torch.zeros(1, 0))),
        ("does not divide 6 heads of a tensor rank", lambda: ulysses.check_heads(6, 6)),
        ("choose 1 or 2", lambda: ulysses.check_heads(8, 2)),  # fewer groups than ranks
        ("ring cuts none", lambda: ulysses.check_heads(2, 2)),
        ("choose ring, all-gather or ulysses", lambda: ContextParallel(axis, "rings")),
        ("documents of shape (1, 2)", lambda: ring.attend(q, q, q, torch.zeros(1, 2))),
        ("lengths are 0 or more", lambda: document_ids([3, -1])),
        ("lengths are 0 or more", lambda: document_ids([0, 0])),
    ]:
        with pytest.raises(ValueError, match=re.escape(words)):
            refused()
    ring.check_heads(6, 1)  # heads and groups of any number


def test_an_empty_document_is_nobodys() -> None:
    assert document_ids([2, 0, 1]).tolist() == [0, 0, 2]
