"""A corpus meets who reads it: too late, too wide, under an old name, cut, counted, alone, apart.

All with megatron-core's own datasets, where its wheel has their C++; what ours does instead is held
by tests/shardlab/data/test_faults_of_megatron.py.
"""

from __future__ import annotations

import faulthandler
import os
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import numpy as np
import torch.distributed as dist
from room import room

from shardlab.comm import World


def megatron() -> ModuleType:
    """Megatron's datasets, whose wheel has their C++ for some Pythons only."""
    from costlab.implementations.megatron import datasets

    return datasets


def samples(reference: ModuleType, prefix: Path, count: int, cache: Path) -> int:
    """How many samples of four tokens Megatron makes of a corpus of `count` documents."""
    return len(
        reference.GPTDataset(
            reference.IndexedDataset(str(prefix)), str(prefix), np.arange(count, dtype=np.int32),
            None, reference.Split.train, reference.config(4, split="1", path_to_cache=str(cache)),
        )
    )  # fmt: skip


@room("closed-corpus", ranks=0)
def closed_corpus(_: None) -> dict[str, float]:
    """The signal that ends a process which reads tokens of a corpus that is gone."""
    reference = megatron()
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a process with threads forks: the child only reads
        prefix = reference.written(Path(folder, "a"), [5000])
        child = os.fork()
        if child == 0:
            faulthandler.disable()  # its end is the result, no accident
            corpus = reference.IndexedDataset(str(prefix))
            tokens = corpus[0]
            del corpus
            os._exit(int(tokens.sum()) & 1)
        _, status = os.waitpid(child, 0)
    return {"signal": float(os.WTERMSIG(status))}


@room("narrow-tokens", ranks=0)
def narrow_tokens(_: None) -> dict[str, float]:
    """What token 70,000 is read as, out of a corpus of uint16."""
    reference = megatron()
    with TemporaryDirectory() as folder:
        builder = reference.IndexedDatasetBuilder(f"{folder}/a.bin", dtype=np.uint16)
        builder.add_document(np.array([70_000]), [1])
        builder.finalize(f"{folder}/a.idx")
        corpus = reference.IndexedDataset(f"{folder}/a")  # held: its tokens don't outlive it
        return {"written": 70_000.0, "read": float(corpus[0][0])}


@room("rewritten-corpus", ranks=0)
def rewritten_corpus(_: None) -> dict[str, float]:
    """Samples of a corpus, of the one that took its place, and of that one without the cache."""
    reference = megatron()
    with TemporaryDirectory() as folder:
        prefix, samples_by_case = Path(folder, "a"), {}
        for name, lengths, cache in (("first", [41, 40], "kept"), ("rewritten", [400, 401], "kept"),
                                     ("right", [400, 401], "new")):  # fmt: skip
            reference.written(prefix, lengths)
            samples_by_case[name] = float(samples(reference, prefix, 2, Path(folder, cache)))
    return samples_by_case


@room("cut-tokens", ranks=0)
def cut_tokens(_: None) -> dict[str, float]:
    """Bytes of a .bin that was cut, bytes its index says, and what opens and reads of it."""
    reference = megatron()
    with TemporaryDirectory() as folder:
        prefix = reference.written(Path(folder, "a"), [50, 50])
        path = Path(f"{prefix}.bin")
        content = path.read_bytes()
        path.write_bytes(content[:300])
        corpus, readable = reference.IndexedDataset(str(prefix)), 0
        for sequence in range(len(corpus)):
            try:
                readable += len(corpus[sequence]) == 50
            except ValueError:
                break
        return {"bytes": 300.0, "said": float(len(content)), "opened": float(len(corpus)),
                "readable": float(readable)}  # fmt: skip


@room("counted-samples", ranks=0)
def counted_samples(_: None) -> dict[str, float]:
    """Samples of two tokens that Megatron's C++ counts in 2^24 + 2 tokens, the last one kept."""
    tokens = 2**24 + 2
    places = megatron().helpers.build_sample_idx(
        np.array([tokens], np.int32), np.zeros(1, np.int32), 2, 1, tokens, False, True
    )
    return {"tokens": float(tokens), "counted": len(places) - 1.0, "right": -(-(tokens - 1) // 2)}


@room("blend-alone", ranks=0)
def blend_alone(_: None) -> dict[str, float]:
    """Whether one process without a process group makes a blend: without a cache, and with one."""
    reference, samples_by_case = megatron(), {}
    assert not dist.is_initialized()
    with TemporaryDirectory() as folder:
        prefixes = [str(reference.written(Path(folder, name), [60, 60])) for name in "ab"]
        part = [reference.IndexedDataset(prefix) for prefix in prefixes]
        for name, cache in (("without", None), ("with", f"{folder}/c")):
            settings = reference.config(4, split="1", path_to_cache=cache)
            parts = [
                reference.GPTDataset(corpus, prefix, np.arange(2, dtype=np.int32), 4,
                                  reference.Split.train, settings)
                for corpus, prefix in zip(part, prefixes, strict=True)
            ]  # fmt: skip
            try:
                samples_by_case[name] = float(
                    len(reference.BlendedDataset(parts, [0.5, 0.5], 8, settings))
                )
            except ValueError:
                samples_by_case[name] = 0.0
    return samples_by_case


@room("unshared-disks", ranks=2)
def unshared_disks(world: World) -> dict[str, float]:
    """Samples that each rank has, where each has a disk of its own; 0 where it raises."""
    reference = megatron()
    with TemporaryDirectory() as folder:
        prefix = reference.written(Path(folder, "a"), [49, 50])
        try:
            count = samples(reference, prefix, 2, Path(folder, "cache"))
        except FileNotFoundError:
            count = 0
    return {f"rank {world.rank}": float(count)}
