"""What the further readings say of Megatron's groups and of the two FSDPs' cuts, asked of both.

The notes are experiments/35-further-readings. Nothing here starts a process: groups are made in a
fake world, and where a cut falls is arithmetic.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp._fully_shard._fsdp_common import _chunk_with_empty
from torch.testing._internal.distributed.fake_pg import FakeStore

from costlab.contestants.megatron import parallel_state

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that apex and Transformer Engine are not installed
    from megatron.core.distributed.fsdp.src.megatron_fsdp import param_and_grad_buffer

Made = list[tuple[str, list[int], dict[str, Any]]]


@contextmanager
def groups_of(rank: int, world: int, **sizes: Any) -> Iterator[Made]:
    """Make Megatron's groups as this rank of a world that isn't there; yield all that it made."""
    made: Made = []
    create = parallel_state.create_group

    def note(ranks: list[int], **options: Any) -> dist.ProcessGroup:
        made.append((options["group_desc"], list(ranks), dict(options)))
        options.pop("backend", None)  # the world is fake, whoever would carry it
        group: dist.ProcessGroup = create(ranks, **options)
        return group

    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel_state, "create_group", note)
        try:
            parallel_state.initialize_model_parallel(**sizes)
            yield made
        finally:
            parallel_state.destroy_model_parallel()
            dist.destroy_process_group()


GRID = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 4}


def test_every_rank_makes_every_group_in_one_order_data_with_context_first() -> None:
    lists = []
    for rank in (0, 5):
        with groups_of(rank, 16, **GRID) as made:
            lists.append([(name, ranks) for name, ranks, _ in made])
    assert lists[0] == lists[1]
    assert lists[0][0] == ("DATA_PARALLEL_GROUP_WITH_CP", [0, 2])
    assert any(0 not in ranks for _, ranks in lists[0])


def test_only_data_parallel_groups_have_a_gloo_twin_and_the_experts_is_told_no_timeout() -> None:
    with groups_of(0, 16, **GRID) as made:
        twins = {name for name, _, options in made if options.get("backend") == "gloo"}
        untimed = {name for name, _, options in made if options.get("timeout") is None}
    assert twins == {
        "DATA_PARALLEL_GROUP_GLOO",
        "DATA_PARALLEL_GROUP_WITH_CP_GLOO",
        "EXPERT_DATA_PARALLEL_GROUP_GLOO",
    }
    assert untimed == {"EXPERT_DATA_PARALLEL_GROUP_GLOO"}


def test_eight_ranks_are_tensor_by_data_and_anew_tensor_by_experts() -> None:
    sizes = {"tensor_model_parallel_size": 2, "expert_model_parallel_size": 4}
    with groups_of(0, 8, **sizes) as made:
        mine = {name: ranks for name, ranks, _ in made if 0 in ranks}
    assert mine["TENSOR_MODEL_PARALLEL_GROUP"] == mine["EXPERT_TENSOR_PARALLEL_GROUP"] == [0, 1]
    assert mine["DATA_PARALLEL_GROUP"] == mine["EXPERT_MODEL_PARALLEL_GROUP"] == [0, 2, 4, 6]
    assert mine["EXPERT_DATA_PARALLEL_GROUP"] == [0]


def test_who_holds_an_embedding_is_asked_with_one_argument_whatever_the_annotation_says() -> None:
    def first(ranks: list[int]) -> list[int]:
        return ranks[:1]

    def annotated(ranks: list[int], split: int | None) -> list[int]:
        return ranks[:1]

    def embedding(rule: Callable[..., list[int]]) -> list[int]:
        with groups_of(0, 16, **GRID, get_embedding_ranks=rule) as made:
            return next(ranks for name, ranks, _ in made if name == "EMBEDDING_GROUP")

    assert embedding(parallel_state.default_embedding_ranks) == [0, 12]
    assert embedding(first) == [0]
    with pytest.raises(TypeError, match="split"):
        embedding(annotated)


def test_a_bucket_is_cut_between_rows_where_fsdp2_gives_every_rank_rows_of_every_tensor() -> None:
    shapes, ranks = [torch.Size([8, 4]), torch.Size([4, 4]), torch.Size([4])], 4
    cutting = SimpleNamespace(data_parallel_sharding_strategy="optim_grads_params")
    held = []
    for rank in range(ranks):
        items, bucket, shard = param_and_grad_buffer.build_data_parallel_buffer_index(
            shapes, rank, ranks, True, cutting, chunk_size_factor=4
        )
        start, end = shard.global_data_index, shard.global_data_index + shard.size
        held.append(
            [
                max(
                    0,
                    min(end, item.global_data_index + item.size)
                    - max(start, item.global_data_index),
                )
                for item in items.values()
            ]
        )
    assert bucket.size == 64  # 52 numbers and the padding
    assert held == [[16, 0, 0], [16, 0, 0], [0, 16, 0], [0, 0, 4]]
    theirs = [[c.numel() for c in _chunk_with_empty(torch.empty(s), ranks, dim=0)] for s in shapes]
    assert theirs == [[8] * 4, [4] * 4, [1] * 4]
