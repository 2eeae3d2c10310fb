"""Sizes and speeds follow nccl-tests; the expected outputs are computed from ranks and places."""

from fractions import Fraction

import pytest
import torch

from costlab.sections.collectives.operations import OPERATIONS, Pattern, elements

CPU = torch.device("cpu")

# https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
BUS = {
    "all_reduce": lambda n: Fraction(2 * (n - 1), n),
    "all_gather": lambda n: Fraction(n - 1, n),
    "reduce_scatter": lambda n: Fraction(n - 1, n),
    "all_to_all": lambda n: Fraction(n - 1, n),
    "broadcast": lambda n: Fraction(1),
    "send_recv": lambda n: Fraction(1),
}


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("name", OPERATIONS)
def test_busbw_is_nccl_tests_factor_of_algbw(name: str, ranks: int) -> None:
    assert OPERATIONS[name].bus_factor(ranks) == BUS[name](ranks)


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("name", OPERATIONS)
def test_the_size_is_the_larger_of_what_a_rank_brings_and_gets(name: str, ranks: int) -> None:
    count = elements(1 << 16, ranks)
    assert count % ranks == 0
    assert 0 <= (1 << 16) - 4 * count < 4 * ranks
    operation = OPERATIONS[name]
    assert max(operation.brings(count, ranks), operation.gets(count, ranks)) == count


def make_input(name: str, rank: int, ranks: int, count: int) -> torch.Tensor:
    x = torch.empty(OPERATIONS[name].brings(count, ranks))
    Pattern(count, CPU).fill(x, rank)
    return x


def expected_output(name: str, rank: int, ranks: int, count: int) -> torch.Tensor:
    """Return the output, computed from all ranks' inputs without a collective."""
    all_ = [make_input(name, r, ranks, count) for r in range(ranks)]
    piece = slice(rank * count // ranks, (rank + 1) * count // ranks)
    return {
        "all_reduce": lambda: torch.stack(all_).sum(0),
        "reduce_scatter": lambda: torch.stack(all_).sum(0)[piece],
        "all_gather": lambda: torch.cat(all_),
        "all_to_all": lambda: torch.cat([x[piece] for x in all_]),
        "broadcast": lambda: all_[0],
        "send_recv": lambda: all_[rank - 1],
    }[name]()


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize(("ranks", "count"), [(2, 64), (3, 300), (2, 1 << 20)])
def test_what_the_operation_means_is_found_right(name: str, ranks: int, count: int) -> None:
    pattern = Pattern(count, CPU)
    for rank in range(ranks):
        assert (
            pattern.wrong(expected_output(name, rank, ranks, count), OPERATIONS[name], rank, ranks)
            == 0
        )


@pytest.mark.parametrize("name", OPERATIONS)
def test_another_ranks_result_a_shift_and_a_single_element_are_found_wrong(name: str) -> None:
    ranks, count, operation, pattern = 3, 300, OPERATIONS[name], Pattern(300, CPU)
    right = expected_output(name, 1, ranks, count)
    for place in (0, len(right) // 2, len(right) - 1):
        bad = right.clone()
        bad[place] += 1
        assert pattern.wrong(bad, operation, 1, ranks) == 1
    assert pattern.wrong(right.roll(1), operation, 1, ranks)
    assert pattern.wrong(torch.zeros_like(right), operation, 1, ranks)
    if name not in ("all_reduce", "broadcast", "all_gather"):  # there all ranks get the same
        assert pattern.wrong(expected_output(name, 2, ranks, count), operation, 1, ranks)
