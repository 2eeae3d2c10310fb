"""A checkpoint of one grid goes on, bit for bit, on any other; a bad one is refused, whole."""

from __future__ import annotations

import json
import math
import os
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from shardlab.comm import World
from shardlab.experts.expert_config import ExpertConfig
from shardlab.experts.layer import ExpertAxes
from shardlab.fsdp import FSDP
from shardlab.fsdp import ShardingStrategy as S
from shardlab.fsdp.flat_parameter import FlatParameter
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.grid.grid import Grid
from shardlab.layers.sharding import whole
from shardlab.training import checkpoint
from shardlab.training.checkpoint import CheckpointError, slices
from shardlab.training.checkpoint.index import Piece, StoredTensor, merge
from shardlab.training.checkpoint.slices import boxes_of_run
from tests.limits import LIMIT
from tests.shardlab.fsdp_models import gathered, sliced
from tests.shardlab.properties import steady

CONFIG = GPTConfig(layers=4, hidden=8, heads=4, kv_heads=4, ffn=8, vocab=10, sequence=4)
UNTIED = replace(CONFIG, tie_embeddings=False, dtype=torch.float64)


class Place(NamedTuple):
    """A grid of ranks, and how FSDP cuts the model over its data ranks, if it does."""

    ranks: int
    sizes: dict[str, int] | None = None
    strategy: S | None = None


HERE = Place(1)
TWO = Place(2, {"tensor": 2})


def setting(
    world: World, place: Place = HERE, config: GPTConfig = CONFIG, seed: int = 0,
    kind: str = "adamw",
) -> tuple[Any, Optimizer, Grid]:  # fmt: skip
    """A model, an optimizer and their grid."""
    grid = Grid(world=world, **(place.sizes or {}))  # type: ignore[arg-type]
    model: Any = GPT(
        config, tensor=grid.tensor, sequence_parallel=config.experts is not None, seed=seed,
        stage=grid.pipeline.rank, stages=grid.pipeline.size, device=world.device,
        experts=ExpertAxes.of(grid) if config.experts else None,
    )  # fmt: skip
    if place.strategy:
        axes = {"axis": grid.data}
        if place.strategy is S.HYBRID_SHARD:  # over pairs of the data ranks
            here = world.rank // 2 * 2
            axes = {
                "axis": world.axis("inner", [here, here + 1]),
                "replicate": world.axis("outer", [world.rank % 2, world.rank % 2 + 2]),
            }
        model = FSDP(model, **axes, units=model.layers.values(), strategy=place.strategy)
    trained = [p for p in model.parameters() if p.requires_grad]
    if kind == "sgd":
        return model, SGD(trained, lr=0.1, momentum=0.9), grid
    return model, AdamW(trained, lr=0.01, betas=(0.8, 0.95)), grid


def fake_step(model: Any, optimizer: Optimizer, step: int) -> None:
    """A step with gradients that depend on names and places alone, so the same on every grid."""
    pairs = list(model.named_parameters())
    gradients = [fake_gradient(*pair, step) for pair in pairs]
    if isinstance(model, FSDP):
        pairs = [("", flat.shard_f) for flat in model.flats]
        gradients = [
            sliced(flat, [fake_gradient(*named, step) for named in named_leaves(flat)])
            for flat in model.flats
        ]
    for (_, parameter), gradient in zip(pairs, gradients, strict=True):
        if parameter.requires_grad:
            parameter.grad = gradient
        else:  # the bias of a router's choice, which no optimizer moves
            parameter.data += gradient
    optimizer.step()


def named_leaves(flat: FlatParameter) -> list[tuple[str, nn.Parameter]]:
    return list(zip(flat.layout.names, flat.leaves, strict=True))


def fake_gradient(name: str, parameter: nn.Parameter, step: int) -> Tensor:
    cut = getattr(parameter, "sharding", None)
    shape = list(parameter.shape)
    if cut:
        shape[cut.dim] = cut.size
    generator = torch.Generator().manual_seed(sum(map(ord, name)) + step)
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
    gradient = drawn.to(parameter.device, parameter.dtype)
    return cut.local(gradient) if cut else gradient


def everything(model: Any, optimizer: Optimizer) -> dict[str, Tensor]:
    """This rank's parameters and optimizer state, whole, on the CPU."""
    state: dict[str, Tensor] = {}
    if isinstance(model, FSDP):
        for flat in model.flats:
            for key, value in {"": flat.shard_f, **optimizer.state.get(flat.shard_f, {})}.items():
                parts = gathered(flat, value) if value.dim() else {}
                for name, leaf in named_leaves(flat):
                    tensor = whole(leaf, parts[name]) if parts else value
                    state[f"{name}/{key}" if key else name] = tensor
    else:
        for name, parameter in model.named_parameters():
            state[name] = whole(parameter)
            for key, value in optimizer.state.get(parameter, {}).items():
                state[f"{name}/{key}"] = whole(parameter, value) if value.dim() else value
    return {name: value.detach().cpu().clone() for name, value in state.items()}


RECORD = {"step": 3, "schedule": {"warmup": 0.1}}


def saved(
    world: World, folder: str, place: Place, config: GPTConfig = CONFIG, kind: str = "adamw"
) -> Any:
    """Train three steps, save, train two more: what one arrives at without a break."""
    model, optimizer, grid = setting(world, place, config, kind=kind)
    order = torch.Generator().manual_seed(5)
    for step in range(3):
        fake_step(model, optimizer, step)
        torch.randint(9, (4,), generator=order)
    optimizer.param_groups[0]["lr"] = 0.005
    checkpoint.save(
        folder, model=model, optimizer=optimizer, grid=grid, record=RECORD,
        generators={"order": order},
    )  # fmt: skip
    for step in range(3, 5):
        fake_step(model, optimizer, step)
    return everything(model, optimizer), torch.randint(9, (4,), generator=order)


def resumed(
    world: World, folder: str, place: Place, config: GPTConfig = CONFIG, kind: str = "adamw"
) -> Any:
    """Start from other weights, load, train the last two steps."""
    model, optimizer, grid = setting(world, place, config, seed=1, kind=kind)
    order = torch.Generator()
    record = checkpoint.load(
        folder, model=model, optimizer=optimizer, grid=grid, generators={"order": order}
    )
    for step in range(record["step"], 5):
        fake_step(model, optimizer, step)
    assert optimizer.param_groups[0]["lr"] == 0.005
    assert record == RECORD
    after = everything(model, optimizer)
    if isinstance(model, FSDP):
        with model.gathered():  # what forward would use
            word = whole(model.module.word_embedding.weight).clone().cpu()
        assert torch.equal(word, after["word_embedding.weight"])
    return after, torch.randint(9, (4,), generator=order)


FOUR = Place(4, {"tensor": 2, "pipeline": 2})
GRIDS = [HERE, TWO, Place(4), FOUR, Place(4, {"tensor": 4})]
EIGHT = [*GRIDS[:3], Place(8, FOUR.sizes), GRIDS[4]]
SHARDS = [Place(2, None, S.FULL_SHARD), FOUR, Place(4, {"tensor": 2}, S.SHARD_GRAD_OP)]
ONE_SHARD = Place(1, None, S.FULL_SHARD)
MORE = [Place(4, None, S.HYBRID_SHARD), FOUR, Place(2, None, S.NO_SHARD), ONE_SHARD]
EXPERTS = replace(
    CONFIG, layers=2, bias=False,
    experts=ExpertConfig(count=4, ffn=8, scores="sigmoid", bias_rate=0.1, shared=8),
)  # fmt: skip
ROUTED = [
    Place(4, {"tensor": 2, "expert": 4, "expert_tensor": 1}),
    HERE,
    Place(4, {"pipeline": 2, "expert": 2}),
    Place(4, {"expert": 2, "expert_tensor": 2}),
    Place(2, {"tensor": 2, "expert_tensor": 1}),
    Place(4, {"tensor": 2, "expert": 2, "expert_tensor": 1}),
]
# A shard of two ranks ends between two experts, or inside an expert.
BETWEEN, INSIDE = (
    replace(
        EXPERTS, dtype=torch.float64,
        experts=ExpertConfig(count=2, ffn=width, scores="sigmoid", bias_rate=0.1),
    )
    for width in (8, 16)
)  # fmt: skip


def moves(strategy: S) -> list[Place]:
    """From and to FSDP, which cuts experts."""
    sharded = Place(2, None, strategy)
    return [sharded, HERE, sharded, Place(2, {"expert": 2}), sharded, Place(2, {"pipeline": 2})]


@pytest.mark.parametrize(
    ("config", "kind", "places"),
    [
        (CONFIG, "adamw", GRIDS),
        pytest.param(UNTIED, "sgd", EIGHT, marks=pytest.mark.ci),
        (CONFIG, "adamw", SHARDS),
        pytest.param(CONFIG, "adamw", MORE, marks=pytest.mark.ci),
        (EXPERTS, "adamw", ROUTED),
        (BETWEEN, "adamw", moves(S.FULL_SHARD)),
        (INSIDE, "adamw", moves(S.SHARD_GRAD_OP)),
        (INSIDE, "adamw", moves(S.NO_SHARD)),
        *(
            pytest.param(config, "adamw", moves(strategy), marks=pytest.mark.ci)
            for config, strategy in (
                (BETWEEN, S.SHARD_GRAD_OP),
                (BETWEEN, S.NO_SHARD),
                (INSIDE, S.FULL_SHARD),
            )
        ),
    ],
)
def test_any_grid_goes_on_from_any_other_bit_for_bit(
    pool: Any, tmp_path: Path, config: GPTConfig, kind: str, places: list[Place]
) -> None:
    straight: dict[str, Tensor] = {}
    for i, place in enumerate(places):
        folder = str(tmp_path / str(i))
        results = pool(place.ranks).run(saved, folder, place, config, kind)
        for tensors, draw in results:
            for name, tensor in tensors.items():
                assert torch.equal(tensor, straight.setdefault(name, tensor)), (place, name)
            assert torch.equal(draw, results[0][1])
        then = places[(i + 1) % len(places)]
        names = set()
        for tensors, after in pool(then.ranks).run(resumed, folder, then, config, kind):
            for name, tensor in tensors.items():
                assert torch.equal(tensor, straight[name]), (place, then, name)
            assert torch.equal(after, draw)
            names |= tensors.keys()
        assert names == straight.keys()
    states = {name.partition("/")[2] for name in straight}
    assert len(states) == (4 if kind == "adamw" else 2)


def saved_without_momentum(world: World, folder: str) -> list[str]:
    """Save an optimizer whose state has a key without a value; return the state's names."""
    model, optimizer, grid = setting(world, kind="sgd")
    for parameter in model.parameters():
        optimizer.state[parameter] = {"momentum_buffer": None}
    checkpoint.save(folder, model=model, optimizer=optimizer, grid=grid)
    index = json.loads(Path(folder, "index.json").read_bytes())
    return [name for name in index["tensors"] if name.startswith("optimizer.")]


def test_a_state_without_a_value_is_not_saved(pool: Any, tmp_path: Path) -> None:
    assert pool(1).run(saved_without_momentum, str(tmp_path / "new")) == [[]]


# ---------------------------------------------------------------------- what is refused


def attempt(
    world: World, folder: str, place: Place = HERE, config: GPTConfig = CONFIG,
    kind: str = "adamw", generators: bool = True,
) -> str:  # fmt: skip
    """Load; return the error, having checked that nothing was changed."""
    model, optimizer, grid = setting(world, place, config, seed=1, kind=kind)
    before = everything(model, optimizer)
    generator = {"order": torch.Generator()} if generators else {}
    try:
        checkpoint.load(
            folder, model=model, optimizer=optimizer, grid=grid,
            generators=generator,
        )  # fmt: skip
    except CheckpointError as error:
        after = everything(model, optimizer)
        assert before.keys() == after.keys()
        assert all(torch.equal(v, after[k]) for k, v in before.items())
        return str(error)
    return "loaded"


@pytest.fixture
def written(pool: Any, tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    pool(2).run(saved, str(folder), TWO)
    return folder


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("shards-*/*.safetensors"))


def edited(folder: Path, change: Callable[[Any], None]) -> None:
    index = json.loads((folder / "index.json").read_text())
    change(index)
    (folder / "index.json").write_text(json.dumps(index))


def test_another_model_is_refused_and_the_difference_named(pool: Any, written: Path) -> None:
    run = lambda **kw: pool(1).run(attempt, str(written), HERE, *kw.values())[0]  # noqa: E731
    assert run() == "loaded"
    message = run(config=replace(CONFIG, hidden=16, tie_embeddings=False))
    assert "hidden = 8 (here 16), tie_embeddings = True (here False)" in message
    message = run(config=replace(CONFIG, dtype=torch.float64))
    assert "is float32 in the checkpoint, float64 in this model" in message
    assert "written with an optimizer that has betas" in run(config=CONFIG, kind="sgd")
    assert "of another model: bias = True (here False), experts = None (" in run(config=EXPERTS)
    message = run(config=CONFIG, kind="adamw", generators=False)
    assert "holds 1 tensors that no rank wants: generator/order" in message


def test_a_checkpoint_of_an_earlier_version_lacks_newer_settings(
    pool: Any, written: Path, tmp_path: Path
) -> None:
    old = tmp_path / "old"
    shutil.copytree(written, old)
    edited(old, lambda index: [index["config"].pop(name) for name in ("norm", "position", "mlp")])
    assert pool(1).run(attempt, str(old)) == ["loaded"]
    edited(old, lambda index: index["config"].update(norm="rms"))
    assert "norm = rms (here layer)" in pool(1).run(attempt, str(old))[0]


def test_a_damaged_checkpoint_is_refused_on_every_rank(pool: Any, written: Path) -> None:
    def broken(damage: Callable[[Path], None]) -> list[str]:
        copy = written.parent / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(written, copy)
        damage(copy)
        return pool(2).run(attempt, str(copy), TWO)

    def swap(folder: Path) -> None:
        first, second = shards(folder)
        first.rename(folder / "aside")
        second.rename(first)
        (folder / "aside").rename(second)

    first, second = broken(lambda folder: shards(folder)[1].unlink())
    assert first.startswith("rank 1 could not read the checkpoint: ")
    assert "rank-00001.safetensors is missing; copy the checkpoint with all its files" in first
    assert first == second
    for message in broken(lambda folder: os.truncate(shards(folder)[0], 1000)):
        assert "is damaged" in message
    assert "should hold" in broken(swap)[0] or "not of this save" in broken(swap)[0]
    for message in broken(lambda folder: (folder / "index.json").unlink()):
        assert "no checkpoint in" in message


def test_an_index_that_lies_is_refused(pool: Any, written: Path) -> None:
    name = "model/layers.0.mlp.fc1.weight"
    original = (written / "index.json").read_bytes()

    def message_for(change: Callable[[Any], None]) -> str:
        (written / "index.json").write_bytes(original)
        edited(written, change)
        return str(pool(1).run(attempt, str(written))[0])

    def entry(index: Any) -> Any:
        return index["tensors"][name]

    outside = "../../../etc/passwd"
    lies: list[tuple[Callable[[Any], Any], str]] = [
        (lambda i: i.update(format="shardlab checkpoint 9"), "this program reads"),
        (lambda i: i.update(extra=1), "unknown field `extra`"),
        (lambda i: i.update(masks=-1), "Expected `int` >= 0"),
        (lambda i: entry(i).update(shape="8, 8"), "not an index"),
        (lambda i: entry(i)["pieces"].pop(), "has 32 of its 64 elements"),
        (lambda i: entry(i)["pieces"].append(entry(i)["pieces"][0]), "has elements twice"),
        (lambda i: entry(i)["pieces"][0].update(offset=[-1, 0]), "has a piece outside it"),
        (lambda i: entry(i)["pieces"][0].update(file=outside), "not a shard of this checkpoint"),
        (lambda i: entry(i).update(shape=[8, 9]), "has 64 of its 72 elements"),
        (lambda i: entry(i).update(shape=[7, 8]), "has a piece outside it"),
        (lambda i: i["tensors"].pop(name), f"has no {name}"),
        (
            lambda i: i["tensors"]["optimizer.step/final_norm.bias"].update(dtype="load"),
            "does not know",
        ),
        (lambda i: i["optimizer"][0].update(lr="__import__('os')"), "an optimizer that has lr"),
        (lambda i: i["optimizer"].append({}), "has 2 parameter groups, this one 1"),
    ]
    for change, expected in lies:
        assert expected in message_for(change), expected
    listed = message_for(lambda i: i["tensors"].pop(name)).split("; it has ")[1]
    assert listed.split(", ")[6].startswith("…"), "six names and a mark for the others"


def test_nothing_in_a_checkpoint_is_unpickled(pool: Any, written: Path, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    attack = pickle.dumps(_Attack(str(mark)))
    for file in (written / "index.json", shards(written)[0]):
        original = file.read_bytes()
        file.write_bytes(attack)
        assert pool(1).run(attempt, str(written))[0] != "loaded"
        file.write_bytes(original)
    assert not mark.exists()
    pickle.loads(attack)
    assert mark.exists(), "the attack itself works"


class _Attack:
    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self._path,)


def test_a_link_in_a_checkpoint_is_refused(pool: Any, written: Path, tmp_path: Path) -> None:
    shard = shards(written)[0]
    shutil.move(shard, tmp_path / "elsewhere")
    shard.symlink_to(tmp_path / "elsewhere")
    assert "is a link" in pool(1).run(attempt, str(written))[0]


# ---------------------------------------------------------------------- a save that is cut short


def cut_short(world: World, folder: str, at: str) -> str:
    """Save over a checkpoint, with a fault on one rank before the index is in place."""
    model, optimizer, grid = setting(world, TWO, seed=7)

    def fault(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    module = checkpoint.shards
    original = getattr(module, at)
    if world.rank == (1 if at == "save_file" else 0):
        setattr(module, at, fault)
    try:
        checkpoint.save(folder, model=model, optimizer=optimizer, grid=grid)
    except CheckpointError as error:
        return str(error)
    finally:
        setattr(module, at, original)
    return "saved"


@pytest.mark.parametrize(("at", "culprit"), [("save_file", 1), ("commit", 0)])
def test_a_save_that_fails_on_one_rank_leaves_the_old_checkpoint(
    pool: Any, written: Path, at: str, culprit: int
) -> None:
    messages = pool(2).run(cut_short, str(written), at)
    assert messages == [messages[culprit]] * 2
    assert messages[culprit].startswith(f"rank {culprit} could not write")
    assert "No space left on device" in messages[culprit]
    assert len(list(written.glob("shards-*"))) == 2, "the unfinished one is there too"
    for tensors, _ in pool(2).run(resumed, str(written), TWO):
        assert tensors
    pool(2).run(saved, str(written), TWO)
    assert len(list(written.glob("shards-*"))) == 1, "the next save sweeps it away"


def scattered(world: World, folders: list[str]) -> str:
    """Save where the folder's name leads each rank to a folder of its own node."""
    try:
        saved(world, folders[world.rank], TWO)
    except checkpoint.CheckpointError as error:
        return str(error)
    return "saved"


def test_no_index_is_written_of_files_that_rank_0_does_not_see(pool: Any, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for words in pool(2).run(scattered, [str(folder) for folder in folders]):
        assert "rank 0 could not write the index: 1 of 2 shards are not in" in words
        assert "choose a folder that all ranks share" in words
    assert not [folder for folder in folders if (folder / "index.json").exists()]


def killed(folder: str, before: str) -> None:
    """Save over a checkpoint in a process of its own, which dies at a call of shards.`before`."""
    import torch.distributed as dist

    setattr(checkpoint.shards, before, lambda *_: os._exit(9))
    world = World.join(backend="gloo", store=dist.HashStore(), rank=0, size=1)
    model, optimizer, grid = setting(world, seed=7)
    checkpoint.save(folder, model=model, optimizer=optimizer, grid=grid)


@pytest.mark.parametrize("before", ["save_file", "sync_to_disk", "commit", "remove_stale"])
def test_a_killed_save_leaves_a_checkpoint_that_loads(
    pool: Any, written: Path, before: str
) -> None:
    import multiprocessing

    worker = multiprocessing.get_context("forkserver").Process(
        target=killed, args=(str(written), before)
    )
    worker.start()
    worker.join(LIMIT)
    assert worker.exitcode == 9
    # After the commit it is the new checkpoint, which has no generators.
    generators = before != "remove_stale"
    assert pool(1).run(attempt, str(written), HERE, CONFIG, "adamw", generators) == ["loaded"]


def save_without(world: World, folder: str, name: str, key: str) -> tuple[str, int]:
    """Save again as if no rank wrote one of the tensors; return the error and what is loaded."""
    model, optimizer, grid = setting(world, SHARDS[0], EXPERTS)
    fake_step(model, optimizer, 0)
    checkpoint.save(folder, model=model, optimizer=optimizer, grid=grid, record={"save": 1})
    boxes, path = slices.ParameterRun.slice_tensor, f"{key}/{name}"

    def without(part: slices.ParameterRun, at: str, alike: Tensor) -> Any:
        return (replace(box, writes=box.writes and at != path) for box in boxes(part, at, alike))

    with pytest.MonkeyPatch.context() as patch, pytest.raises(CheckpointError) as error:
        patch.setattr(slices.ParameterRun, "slice_tensor", without)
        checkpoint.save(folder, model=model, optimizer=optimizer, grid=grid, record={"save": 2})
    return str(error.value), checkpoint.load(folder, model=model, grid=grid)["save"]


@pytest.mark.parametrize("key", ["model", "optimizer.exp_avg"])
def test_a_tensor_that_a_rank_holds_and_no_rank_writes_stops_the_save_on_all_ranks(
    pool: Any, tmp_path: Path, key: str
) -> None:
    name = "layers.1.mlp.experts.3.fc1.weight"
    for error, loaded in pool(2).run(save_without, str(tmp_path), name, key):
        assert f"{key}/{name} (8, 8) has 0 of its 64 elements in the index" in error
        assert loaded == 1, "the former checkpoint must still be there"


def alone_among_others(world: World, folder: str) -> str:
    """Parameters of one flat shard that have taken different numbers of steps."""
    model, optimizer, grid = setting(world)
    fake_step(model, optimizer, 0)
    optimizer.state[model.layers["1"].mlp.fc1.weight]["step"] += 1
    checkpoint.save(folder, model=model, optimizer=optimizer, grid=grid)
    fsdp, optimizer, grid = setting(world, ONE_SHARD, seed=1)
    with pytest.raises(CheckpointError) as error:
        checkpoint.load(folder, model=fsdp, optimizer=optimizer, grid=grid)
    return str(error.value)


def test_numbers_that_one_flat_shard_cannot_have_are_refused(pool: Any, tmp_path: Path) -> None:
    assert "is 2.0 in the checkpoint, and 1.0 of another parameter" in "".join(
        pool(1).run(alone_among_others, str(tmp_path))
    )


# ---------------------------------------------------------------------- pure


def piece(rank: int, offset: tuple[int, ...], shape: tuple[int, ...]) -> Piece:
    return Piece(f"shards-{0:016x}/rank-{rank:05}.safetensors", offset, shape)


@steady
@given(shape=st.lists(st.integers(1, 4), max_size=4), draw=st.data())
def test_a_run_of_elements_is_cut_into_boxes_that_hold_each_once_in_order(
    shape: list[int], draw: st.DataObject
) -> None:
    whole_X = torch.arange(math.prod(shape)).view(shape)
    begin = draw.draw(st.integers(0, whole_X.numel()))
    end = draw.draw(st.integers(begin, whole_X.numel()))
    elements: list[int] = []
    boxes = list(boxes_of_run(shape, begin, end - begin))
    for offset, size in boxes:
        where = tuple(slice(o, o + n) for o, n in zip(offset, size, strict=True))
        elements += whole_X[where].flatten().tolist()
    assert elements == list(range(begin, end))
    assert len(boxes) <= max(2 * len(shape) - 1, 1)


def test_ranks_that_disagree_about_a_tensor_write_no_index() -> None:
    first = {"w": StoredTensor("float32", (4, 3), (piece(0, (0, 0), (2, 3)),))}
    second = {"w": StoredTensor("float32", (5, 3), (piece(1, (2, 0), (3, 3)),))}
    with pytest.raises(CheckpointError, match="ranks disagree about w"):
        merge([first, second])
    with pytest.raises(CheckpointError, match="has 6 of its 12 elements"):
        merge([first])


def test_what_no_other_grid_could_read_is_not_written(pool: Any, tmp_path: Path) -> None:
    state, record = pool(1).run(odd, str(tmp_path))[0]
    assert "the optimizer's exp_avg_sq_row of" in state
    assert "the record is not plain JSON" in record
    assert not (tmp_path / "index.json").exists()


def odd(world: World, folder: str) -> list[str]:
    messages = []
    for what in ("state", "record"):
        model, optimizer, grid = setting(world)
        if what == "state":
            for parameter in model.parameters():
                optimizer.state[parameter]["exp_avg_sq_row"] = torch.zeros(99)
        record = {"order": torch.zeros(3)} if what == "record" else {}
        with pytest.raises(CheckpointError) as error:
            checkpoint.save(folder, model=model, optimizer=optimizer, grid=grid, record=record)
        messages.append(str(error.value))
    return messages


def by_stage(world: World, folder: str) -> str:
    """Each stage learns at a rate of its own, as layers do that are tuned apart."""
    model, optimizer, grid = setting(world, Place(2, {"pipeline": 2}))
    optimizer.param_groups[0]["lr"] = 0.01 * 2**grid.pipeline.rank
    with pytest.raises(CheckpointError) as error:
        checkpoint.save(folder, model=model, optimizer=optimizer, grid=grid)
    return str(error.value)


def test_settings_that_a_load_would_give_to_all_ranks_are_the_same_on_all(
    pool: Any, tmp_path: Path
) -> None:
    for message in pool(2).run(by_stage, str(tmp_path)):
        assert "parameter groups differ, in lr, between ranks 0 and 1" in message
    assert not (tmp_path / "index.json").exists()
