"""The pinned wheels themselves, by range from the package index (a machine without one says so)."""

import os
from pathlib import Path

import pytest

from notelab.sources.answers import FoundFile, Source
from notelab.sources.library import Library
from notelab.sources.store import Store

MEGATRON = Source(
    "megatron",
    "https://git-host.invalid/megatron.git",
    "55ac7082517c3878ae653c07c09c534b8aed49f6",
    wheel="megatron-core==0.16.1",
)
PYTORCH = Source(
    "pytorch",
    "https://git-host.invalid/pytorch.git",
    "cf30153c4c131c8164ee7798e5022d810682e2cb",
    wheel="torch==2.13.0",
)


pytestmark = [
    pytest.mark.network,
    pytest.mark.may_skip,
    pytest.mark.skipif(
        bool(os.environ.get("PIP_NO_INDEX")), reason="this machine has no package index"
    ),
]


def test_known_files_come_out_of_the_published_wheels(tmp_path: Path) -> None:
    layers = "megatron/core/tensor_parallel/layers.py"
    answer = Library(Store(tmp_path), {}).read(
        MEGATRON, {layers: "69f442eb2d4fec51e04d355f8aa97bcfe7b9057e"}
    )[layers]
    assert isinstance(answer, FoundFile), answer


def test_the_torch_wheel_names_its_commit_and_so_proves_a_file_never_seen(tmp_path: Path) -> None:
    flat = "torch/distributed/fsdp/_flat_param.py"
    answer = Library(Store(tmp_path), {}).read(PYTORCH, {flat: None})[flat]
    assert isinstance(answer, FoundFile), answer
    assert answer.blob == "67481f1c07c101ef2a6465cfaf652153d59fae8b"
    assert answer.proof == "wheel"
