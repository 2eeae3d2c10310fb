"""What the further readings say of Megatron's groups, buckets, experts and samples, asked of it.

The notes are experiments/35-further-readings. Nothing here starts a process: groups are made in a
fake world, and where a cut falls is arithmetic.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp._fully_shard._fsdp_common import _chunk_with_empty
from torch.testing._internal.distributed.fake_pg import FakeStore

from costlab.implementations.megatron import parallel_state

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that apex and Transformer Engine are not installed
    from megatron.core.datasets import gpt_dataset, helpers
    from megatron.core.distributed.fsdp.src.megatron_fsdp import param_and_grad_buffer
    from megatron.core.transformer.moe import moe_layer, token_dispatcher

Groups = list[tuple[str, list[int], dict[str, Any]]]


@contextmanager
def groups_of(rank: int, world: int, **sizes: Any) -> Iterator[Groups]:
    """Make Megatron's groups as this rank of a world that isn't there; yield all that it made."""
    groups: Groups = []
    create = parallel_state.create_group

    def note(ranks: list[int], **options: Any) -> dist.ProcessGroup:
        groups.append((options["group_desc"], list(ranks), dict(options)))
        options.pop("backend", None)  # the world is fake, whoever would carry it
        group: dist.ProcessGroup = create(ranks, **options)
        return group

    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel_state, "create_group", note)
        try:
            parallel_state.initialize_model_parallel(**sizes)
            yield groups
        finally:
            parallel_state.destroy_model_parallel()
            dist.destroy_process_group()


GRID = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 4}


def test_every_rank_makes_every_group_in_one_order_data_with_context_first() -> None:
    lists = []
    for rank in (0, 5):
        with groups_of(rank, 16, **GRID) as groups:
            lists.append([(name, ranks) for name, ranks, _ in groups])
    assert lists[0] == lists[1]
    assert lists[0][0] == ("DATA_PARALLEL_GROUP_WITH_CP", [0, 2])
    assert any(0 not in ranks for _, ranks in lists[0])


def test_only_data_parallel_groups_have_a_gloo_twin_and_the_experts_is_told_no_timeout() -> None:
    with groups_of(0, 16, **GRID) as groups:
        twins = {name for name, _, options in groups if options.get("backend") == "gloo"}
        untimed = {name for name, _, options in groups if options.get("timeout") is None}
    assert twins == {
        "DATA_PARALLEL_GROUP_GLOO",
        "DATA_PARALLEL_GROUP_WITH_CP_GLOO",
        "EXPERT_DATA_PARALLEL_GROUP_GLOO",
    }
    assert untimed == {"EXPERT_DATA_PARALLEL_GROUP_GLOO"}


def test_eight_ranks_are_tensor_by_data_and_anew_tensor_by_experts() -> None:
    sizes = {"tensor_model_parallel_size": 2, "expert_model_parallel_size": 4}
    with groups_of(0, 8, **sizes) as groups:
        groups_of_rank_0 = {name: ranks for name, ranks, _ in groups if 0 in ranks}
    assert (
        groups_of_rank_0["TENSOR_MODEL_PARALLEL_GROUP"]
        == groups_of_rank_0["EXPERT_TENSOR_PARALLEL_GROUP"]
        == [0, 1]
    )
    assert (
        groups_of_rank_0["DATA_PARALLEL_GROUP"]
        == groups_of_rank_0["EXPERT_MODEL_PARALLEL_GROUP"]
        == [0, 2, 4, 6]
    )
    assert groups_of_rank_0["EXPERT_DATA_PARALLEL_GROUP"] == [0]


def test_who_holds_an_embedding_is_asked_with_one_argument_whatever_the_annotation_says() -> None:
    def first(ranks: list[int]) -> list[int]:
        return ranks[:1]

    def annotated(ranks: list[int], split: int | None) -> list[int]:
        return ranks[:1]

    def embedding(rule: Callable[..., list[int]]) -> list[int]:
        with groups_of(0, 16, **GRID, get_embedding_ranks=rule) as groups:
            return next(ranks for name, ranks, _ in groups if name == "EMBEDDING_GROUP")

    assert embedding(parallel_state.default_embedding_ranks) == [0, 12]
    assert embedding(first) == [0]
    with pytest.raises(TypeError, match="split"):
        embedding(annotated)


def test_a_bucket_is_cut_between_rows_where_fsdp2_gives_every_rank_rows_of_every_tensor() -> None:
    shapes, ranks = [torch.Size([8, 4]), torch.Size([4, 4]), torch.Size([4])], 4
    cutting = SimpleNamespace(data_parallel_sharding_strategy="optim_grads_params")
    numels_by_rank = []
    for rank in range(ranks):
        items, bucket, shard = param_and_grad_buffer.build_data_parallel_buffer_index(
            shapes, rank, ranks, True, cutting, chunk_size_factor=4
        )
        start, end = shard.global_data_index, shard.global_data_index + shard.size
        numels_by_rank.append(
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
    assert numels_by_rank == [[16, 0, 0], [16, 0, 0], [0, 16, 0], [0, 0, 4]]
    fsdp2_numels = [
        [c.numel() for c in _chunk_with_empty(torch.empty(s), ranks, dim=0)] for s in shapes
    ]
    assert fsdp2_numels == [[8] * 4, [4] * 4, [1] * 4]


def test_a_mixture_of_experts_on_tensor_ranks_is_refused_without_sequence_parallelism() -> None:
    layer = SimpleNamespace(
        training=True,
        attn_tp_group=SimpleNamespace(size=lambda: 2),
        config=SimpleNamespace(sequence_parallel=False),
    )
    with pytest.raises(ValueError, match="performance may degrade"):
        moe_layer.MoELayer.forward(layer, torch.empty(4, 1, 8))


def test_a_capacity_makes_the_cpu_wait_sooner_and_only_padding_to_it_spares_the_wait() -> None:
    def waits(capacity: float | None, *, padded: bool) -> str:
        dispatcher = object.__new__(token_dispatcher.MoEAlltoAllTokenDispatcher)
        points = ("before_permutation_1", "before_ep_alltoall", "before_permutation_2")
        order = (*points, "before_finish", "no_sync")
        dispatcher.cuda_sync_point_priority = {point: place for place, point in enumerate(order)}
        dispatcher.cuda_sync_point, dispatcher.cuda_dtoh_point = "no_sync", "before_permutation_1"
        dispatcher.drop_and_pad, dispatcher.moe_expert_capacity_factor = padded, capacity
        dispatcher.num_experts = dispatcher.num_local_experts = 4
        dispatcher.tp_size = dispatcher.ep_size = 1
        dispatcher.permute_idx_device = torch.device("cpu")
        dispatcher.config = SimpleNamespace(
            moe_router_topk=2,
            moe_expert_capacity_factor=capacity,
            moe_router_padding_for_quantization=False,
            moe_permute_fusion=True,
        )
        dispatcher.preprocess(torch.ones(3, 4, dtype=torch.bool))
        point: str = dispatcher.cuda_sync_point
        return point

    assert waits(None, padded=False) == "before_finish"
    assert waits(1.0, padded=False) == "before_permutation_1"
    assert waits(1.0, padded=True) == "no_sync"


def test_two_samples_share_the_token_that_one_predicts_last_and_the_other_sees_first() -> None:
    lengths, order = np.array([5, 3, 7], np.int32), np.array([0, 1, 2], np.int32)
    starts = helpers.build_sample_idx(lengths, order, 4, 1, int(lengths.sum()), True, 1)
    # Three samples of 4 + 1 tokens begin at tokens 0, 4 and 8 of 15, and the last ends with 12.
    assert starts.tolist() == [[0, 0], [0, 4], [2, 0], [2, 4]]


def test_documents_of_all_epochs_are_shuffled_together_but_those_of_a_last_one_kept_apart() -> None:
    documents, draw = np.arange(6), np.random.RandomState
    shuffled_at_once = gpt_dataset._build_document_index(documents, 3, draw(1), False)
    last_epoch_separate = gpt_dataset._build_document_index(documents, 3, draw(1), True)
    assert sorted(shuffled_at_once[:6]) != sorted(documents)  # not one whole epoch first
    assert sorted(last_epoch_separate[12:]) == sorted(documents)
    assert sorted(last_epoch_separate[:12]) == sorted([*documents] * 2)


def test_without_a_mask_from_the_dataset_documents_are_not_kept_apart() -> None:
    text, end = torch.tensor([5, 0, 7, 8]), 0
    masks = [
        gpt_dataset._get_ltor_masks_and_position_ids(text, end, False, True, False, has_mask)[0]
        for has_mask in (True, False)
    ]
    assert masks[1] is None
    assert masks[0][0, 2].tolist() == [True, True, False, True]  # True hides
