"""What a digest of a tensor must see, and that it is made where the tensor lies."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from torch import Tensor

from shardlab.data_parallel import replicas as module
from shardlab.data_parallel.replicas import digest

ROW = module._ROW
DTYPES = [
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn,
    torch.complex64, torch.int64, torch.int8, torch.bool,
]  # fmt: skip


def of(tensor: Tensor) -> int:
    return int(digest(tensor))


def noise(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_bit_of_any_dtype_and_size_counts(dtype: torch.dtype) -> None:
    for size in (1, 2, 3, 5, 7):
        x = noise(size, dtype=dtype)
        content = x.view(torch.uint8)
        seen = {of(x)}
        for place in range(len(content)):
            for bit in range(8):
                content[place] ^= 1 << bit
                seen.add(of(x))
                content[place] ^= 1 << bit
        assert len(seen) == 1 + 8 * len(content)


@pytest.mark.parametrize("size", [ROW - 1, ROW, ROW + 1, 17 * ROW + 3])
def test_a_bit_counts_wherever_it_stands_in_many_rows(size: int) -> None:
    x = noise(size)
    words, before = x.view(torch.int32), of(x)
    for place in (0, 1, size // 2, ROW - 2, size - 2, size - 1):
        words[place] ^= 1
        assert of(x) != before
        words[place] ^= 1
    assert of(x) == before


def test_elements_that_changed_places_are_seen() -> None:
    """A sign alone apart is the worst case: words that differ by 2^31 and nothing else."""
    for dtype in (torch.float32, torch.float64):
        for a, b in combinations((0, 1, 5, ROW - 1, ROW, ROW + 5, 9 * ROW + 77), 2):
            x = noise(10 * ROW, dtype=dtype)
            x[a], x[b] = 1.5, -1.5
            before = of(x)
            x[a], x[b] = -1.5, 1.5
            assert of(x) != before, (dtype, a, b)


def test_no_two_multipliers_let_words_change_places_unseen() -> None:
    for level in range(4):
        drawn = module._draw_multipliers(level, torch.device("cpu")).tolist()
        assert all(number % 2 for number in drawn)
        assert len({number % 2**33 for number in drawn}) == ROW


def test_zeros_and_nans_that_compare_alike_or_never_are_told_by_their_bits() -> None:
    assert of(torch.tensor([0.0])) != of(torch.tensor([-0.0]))
    first, second = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert of(first) == of(first.clone()) != of(second)


def test_the_order_of_elements_counts_and_not_how_they_lie_in_memory() -> None:
    x = noise(40, 33, dtype=torch.bfloat16)
    assert of(x.t()) == of(x.t().contiguous()) != of(x)
    assert of(x.flatten()[1:]) == of(x.flatten()[1:].clone()), "an offset of two bytes"
    assert of(noise(0)) == 0


def test_the_digest_is_the_same_however_much_is_summed_at_once(monkeypatch) -> None:
    x = noise(33 * ROW + 5)
    before = of(x)
    monkeypatch.setattr(module, "_CHUNK_WORDS", {"cpu": ROW})
    assert of(x) == before


def test_nothing_is_brought_to_the_host() -> None:
    """A meta tensor has nothing to bring: whoever asks for a value of it fails."""
    result = digest(torch.empty(3 * ROW + 1, dtype=torch.bfloat16, device="meta"))
    assert (result.device.type, result.dtype, result.shape) == ("meta", torch.int64, ())
