"""Sharding counted: ours, FSDP1 and FSDP2 beside DDP; FSDP1 in inference; states by arithmetic."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.nn.parallel import DistributedDataParallel

from costlab.implementations import tutor
from costlab.implementations.dtensor import WholeGPT
from costlab.implementations.fsdp import fsdp1, fsdp2
from costlab.record.result import Metric
from costlab.sections.counts.count_tensor import watched
from costlab.sections.metrics import counted
from shardlab.comm import World
from shardlab.fsdp import FSDP
from shardlab.proofs.ledger import Ledger

WIDTH, DEPTH = 32, 4
# fp32 weights and gradients, and Adam's two moments: 4 bytes each (arXiv 1910.02054, section 3).
BYTES_A_PARAMETER = 4 + 4 + 4 + 4
CARDS = (8, 16, 24, 80)
# More parameters than the largest of these cards holds: 12·H² a layer.
WIDE, DEEP = 8192, 8
BATCHES = (1, 64)
STRATEGIES = {"reshard": ShardingStrategy.FULL_SHARD, "keep": ShardingStrategy.SHARD_GRAD_OP}


def training(world: World) -> Iterator[Metric]:
    """Bytes of a sharded step over those of DDP's: all in units, and a quarter left to the root."""
    x = torch.ones(2, WIDTH, device=world.device)
    replica = DistributedDataParallel(_layers(world))
    replicated = watched(lambda: replica(x)).total().wire
    # What no unit wraps is the root's, and stays whole from forward to backward.
    wraps: dict[str, Callable[..., nn.Module]] = {
        "fsdp": lambda world, layers, units: FSDP(layers, world.whole, units=units),
        "fsdp1": fsdp1,
        "fsdp2": fsdp2,
    }
    for version, wrap in wraps.items():
        for name, first in (("units", 0), ("root", 1)):
            layers = _layers(world)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # deprecations, of torch in torch
                module = wrap(world, layers, list(layers)[first:])
                ledger = watched(lambda module=module: module(x))  # type: ignore[misc]
            ratio = ledger.total().wire / replicated
            yield counted(f"{version}.{name}.wire-ratio", ratio, "ratio")


def inference(world: World) -> Iterator[Metric]:
    """What FSDP1 gathers in a second forward without gradients, and holds after it.

    One sequence of one token and of 64: what is gathered doesn't ask.
    """
    for name, strategy in STRATEGIES.items():
        # Units of their own, none left to the root, which stays whole whatever the strategy.
        layers = _layers(world)
        payload = sum(parameter.nbytes for parameter in layers.parameters())
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # deprecations, of torch in torch
            sharded = fsdp1(world, layers, list(layers), sharding_strategy=strategy)
            for batch in BATCHES:
                x = torch.ones(batch, WIDTH, device=world.device)
                sharded(x)
                with Ledger() as ledger:
                    sharded(x)
                share = ledger.total("all_gather").payload / payload
                tokens = "" if batch == BATCHES[-1] else ".one-token"
                yield counted(f"fsdp.inference.{name}.gathered-share{tokens}", share, "share")
        unsharded_bytes = sum(handle.flat_param._full_param_padded.untyped_storage().size()
                   for module in FullyShardedDataParallel.fsdp_modules(sharded)
                   if (handle := module._handle) is not None)  # fmt: skip
        yield counted(f"fsdp.inference.{name}.held-share", unsharded_bytes / payload, "share")


def _layers(world: World) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))).to(world.device)


def memory() -> Iterator[Metric]:
    """How many parameters fill a card with states alone, replicated and in fp32.

    And how many a wide model has whose vocabulary is the tutor's.
    """
    for card in CARDS:
        parameters = card * 1e9 / BYTES_A_PARAMETER
        yield counted(f"replicated.{card}gb.parameters", parameters, "parameters", how="derived")
    config = replace(tutor.config(WIDE), layers=DEEP)
    with torch.device("meta"):
        model = WholeGPT(config)
    total = sum(parameter.numel() for parameter in model.parameters())
    yield counted("tutors-vocabulary.wide-model", total, "parameters", vocabulary=config.vocab)
