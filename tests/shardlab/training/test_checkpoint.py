"""A checkpoint of one grid goes on, bit for bit, on any other; a bad one is refused, whole."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from shardlab.comm import World
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.grid.grid import Grid
from shardlab.layers.sharding import whole
from shardlab.training import checkpoint
from shardlab.training.checkpoint import CheckpointError
from shardlab.training.checkpoint.index import Piece, StoredTensor, check, merge, overlap
from tests.limits import LIMIT

CONFIG = GPTConfig(layers=4, hidden=8, heads=4, kv_heads=4, ffn=8, vocab=10, sequence=4)
DROPPING = replace(CONFIG, dropout=0.5)
UNTIED = replace(CONFIG, tie_embeddings=False, dtype=torch.float64)


def setting(
    world: World, sizes: tuple[int, int], config: GPTConfig = CONFIG, seed: int = 0,
    kind: str = "adamw",
) -> tuple[GPT, Optimizer, Grid]:  # fmt: skip
    """A model and optimizer on a tensor × pipeline × (what is left) grid."""
    grid = Grid(world=world, tensor=sizes[0], pipeline=sizes[1])
    model = GPT(
        config, tensor=grid.tensor, sequence_parallel=False, seed=seed, stage=grid.pipeline.rank,
        stages=sizes[1], device=world.device,
    )  # fmt: skip
    if kind == "sgd":
        return model, SGD(model.parameters(), lr=0.1, momentum=0.9), grid
    return model, AdamW(model.parameters(), lr=0.01, betas=(0.8, 0.95)), grid


def fake_step(model: GPT, optimizer: Optimizer, step: int) -> None:
    """A step with gradients that depend on names and places alone, so the same on every grid."""
    for name, parameter in model.named_parameters():
        parameter.grad = fake_gradient(name, parameter, step)
    optimizer.step()


def fake_gradient(name: str, parameter: nn.Parameter, step: int) -> Tensor:
    cut = getattr(parameter, "sharding", None)
    shape = list(parameter.shape)
    if cut:
        shape[cut.dim] = cut.size
    generator = torch.Generator().manual_seed(sum(map(ord, name)) + step)
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
    gradient = drawn.to(parameter.device, parameter.dtype)
    return cut.local(gradient) if cut else gradient


def everything(model: GPT, optimizer: Optimizer) -> dict[str, Tensor]:
    """This stage's parameters and optimizer state, whole, on the CPU."""
    state = {}
    for name, parameter in model.named_parameters():
        state[name] = whole(parameter).cpu()
        for key, value in optimizer.state[parameter].items():
            state[f"{name}/{key}"] = (whole(parameter, value) if value.dim() else value).cpu()
    return {name: value.clone() for name, value in state.items()}


RECORD = {"step": 3, "schedule": {"warmup": 0.1}}


def saved(
    world: World, folder: str, sizes: tuple[int, int], config: GPTConfig, kind: str,
    shuffles: bool = True,
) -> Any:  # fmt: skip
    """Train three steps, save, train two more: what one arrives at without a break."""
    model, optimizer, grid = setting(world, sizes, config, kind=kind)
    order = torch.Generator().manual_seed(5)
    for step in range(3):
        fake_step(model, optimizer, step)
        torch.randint(9, (4,), generator=order)
    optimizer.param_groups[0]["lr"] = 0.005
    checkpoint.save(
        folder, model=model, optimizer=optimizer, grid=grid, record=RECORD,
        generators={"order": order} if shuffles else None,
    )  # fmt: skip
    for step in range(3, 5):
        fake_step(model, optimizer, step)
    return everything(model, optimizer), torch.randint(9, (4,), generator=order)


def resumed(
    world: World, folder: str, sizes: tuple[int, int], config: GPTConfig, kind: str,
    shuffles: bool = True,
) -> Any:  # fmt: skip
    """Start from other weights, load, train the last two steps."""
    model, optimizer, grid = setting(world, sizes, config, seed=1, kind=kind)
    order = torch.Generator()
    record = checkpoint.load(
        folder, model=model, optimizer=optimizer, grid=grid,
        generators={"order": order} if shuffles else None,
    )  # fmt: skip
    for step in range(record["step"], 5):
        fake_step(model, optimizer, step)
    assert optimizer.param_groups[0]["lr"] == 0.005
    assert record == RECORD
    return everything(model, optimizer), torch.randint(9, (4,), generator=order)


@pytest.mark.parametrize(("config", "kind", "ranks"), [(CONFIG, "adamw", 4), (UNTIED, "sgd", 8)])
def test_any_grid_goes_on_from_any_other_bit_for_bit(
    pool: Any, tmp_path: Path, config: GPTConfig, kind: str, ranks: int
) -> None:
    moves = [(1, (1, 1)), (2, (2, 1)), (4, (1, 4)), (ranks, (2, 2)), (4, (4, 1)), (1, (1, 1))]
    straight: dict[str, Tensor] = {}
    for i, (here, sizes) in enumerate(moves):
        folder = str(tmp_path / str(i))
        results = pool(here).run(saved, folder, sizes, config, kind)
        for tensors, draw in results:
            for name, tensor in tensors.items():
                assert torch.equal(tensor, straight.setdefault(name, tensor)), (sizes, name)
            assert torch.equal(draw, results[0][1])
        then, resumed_sizes = moves[(i + 1) % len(moves)]
        for tensors, after in pool(then).run(resumed, folder, resumed_sizes, config, kind):
            for name, tensor in tensors.items():
                assert torch.equal(tensor, straight[name]), (sizes, resumed_sizes, name)
            assert torch.equal(after, draw)
    assert len(straight) == (4 if kind == "adamw" else 2) * sum(1 for n in straight if "/" not in n)


def saved_without_momentum(world: World, folder: str) -> list[str]:
    """Save an optimizer whose state has a key without a value; return the state's names."""
    model, optimizer, grid = setting(world, (1, 1), kind="sgd")
    for parameter in model.parameters():
        optimizer.state[parameter] = {"momentum_buffer": None}
    checkpoint.save(folder, model=model, optimizer=optimizer, grid=grid)
    index = json.loads(Path(folder, "index.json").read_bytes())
    return [name for name in index["tensors"] if name.startswith("optimizer.")]


def test_a_state_without_a_value_is_not_saved(pool: Any, tmp_path: Path) -> None:
    assert pool(1).run(saved_without_momentum, str(tmp_path / "new")) == [[]]


# ---------------------------------------------------------------------- dropout


def dropped(
    world: World, folder: str, sizes: tuple[int, int], begin: int, end: int
) -> list[tuple[int, ...]]:
    """Run steps begin … end − 1, from the checkpoint unless at 0; save; say what each dropped."""
    model, _, grid = setting(world, sizes, DROPPING)
    if begin:
        checkpoint.load(folder, model=model, grid=grid)
    last, masks = model.layers["3"].dropout2, []
    ones = torch.ones(DROPPING.sequence, 2, DROPPING.hidden, device=world.device)
    last.register_forward_pre_hook(lambda *_: (ones,))
    last.register_forward_hook(lambda _, __, y: masks.append((y > 0).cpu()))
    words = torch.zeros(2, DROPPING.sequence, dtype=torch.long, device=world.device)
    with torch.no_grad():
        for _ in range(begin, end):
            model(words)
        model.eval()
        model(words)  # draws nothing
    checkpoint.save(folder, model=model, grid=grid)
    return [tuple(mask.flatten().tolist()) for mask in masks[:-1]]


def test_a_run_that_goes_on_drops_as_one_without_a_break_on_any_grid(
    pool: Any, tmp_path: Path
) -> None:
    straight = pool(1).run(dropped, str(tmp_path / "straight"), (1, 1), 0, 6)[0]
    assert len(set(straight)) == 6, "each step drops something else"
    grids = [(1, (1, 1)), (2, (2, 1)), (4, (2, 1))]  # the last has two replicas
    for i, (ranks, sizes) in enumerate(grids):
        resumed_losses = pool(ranks).run(dropped, str(tmp_path / "run"), sizes, 2 * i, 2 * i + 2)
        assert resumed_losses == [straight[2 * i : 2 * i + 2]] * ranks, sizes


# ---------------------------------------------------------------------- what is refused


def attempt(
    world: World, folder: str, sizes: tuple[int, int], config: GPTConfig = CONFIG,
    kind: str = "adamw", generators: bool = True,
) -> str:  # fmt: skip
    """Load; return the error, having checked that nothing was changed."""
    model, optimizer, grid = setting(world, sizes, config, seed=1, kind=kind)
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
    pool(2).run(saved, str(folder), (2, 1), CONFIG, "adamw")
    return folder


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("shards-*/*.safetensors"))


def edited(folder: Path, change: Callable[[Any], None]) -> None:
    index = json.loads((folder / "index.json").read_text())
    change(index)
    (folder / "index.json").write_text(json.dumps(index))


def test_another_model_is_refused_and_the_difference_named(pool: Any, written: Path) -> None:
    run = lambda **kw: pool(1).run(attempt, str(written), (1, 1), *kw.values())[0]  # noqa: E731
    assert run() == "loaded"
    message = run(config=replace(CONFIG, hidden=16, tie_embeddings=False))
    assert "hidden = 8 (here 16), tie_embeddings = True (here False)" in message
    message = run(config=replace(CONFIG, dtype=torch.float64))
    assert "is float32 in the checkpoint, float64 in this model" in message
    assert "written with an optimizer that has betas" in run(config=CONFIG, kind="sgd")
    message = run(config=CONFIG, kind="adamw", generators=False)
    assert "holds 1 tensors that no rank wants: generator/order" in message


def test_a_checkpoint_of_an_earlier_version_lacks_newer_settings(
    pool: Any, written: Path, tmp_path: Path
) -> None:
    old = tmp_path / "old"
    shutil.copytree(written, old)
    edited(old, lambda index: [index["config"].pop(name) for name in ("norm", "position", "mlp")])
    assert pool(1).run(attempt, str(old), (1, 1)) == ["loaded"]
    edited(old, lambda index: index["config"].update(norm="rms"))
    assert "norm = rms (here layer)" in pool(1).run(attempt, str(old), (1, 1))[0]


def test_a_damaged_checkpoint_is_refused_on_every_rank(pool: Any, written: Path) -> None:
    def broken(damage: Callable[[Path], None]) -> list[str]:
        copy = written.parent / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(written, copy)
        damage(copy)
        return pool(2).run(attempt, str(copy), (2, 1))

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
        return str(pool(1).run(attempt, str(written), (1, 1))[0])

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
        assert pool(1).run(attempt, str(written), (1, 1))[0] != "loaded"
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
    assert "is a link" in pool(1).run(attempt, str(written), (1, 1))[0]


# ---------------------------------------------------------------------- a save that is cut short


def cut_short(world: World, folder: str, at: str) -> str:
    """Save over a checkpoint, with a fault on one rank before the index is in place."""
    model, optimizer, grid = setting(world, (2, 1), seed=7)

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
    for tensors, _ in pool(2).run(resumed, str(written), (2, 1), CONFIG, "adamw"):
        assert tensors
    pool(2).run(saved, str(written), (2, 1), CONFIG, "adamw")
    assert len(list(written.glob("shards-*"))) == 1, "the next save sweeps it away"


def scattered(world: World, folders: list[str]) -> str:
    """Save where the folder's name leads each rank to a folder of its own node."""
    try:
        saved(world, folders[world.rank], (2, 1), CONFIG, "adamw")
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
    model, optimizer, grid = setting(world, (1, 1), seed=7)
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
    assert pool(1).run(attempt, str(written), (1, 1), CONFIG, "adamw", generators) == ["loaded"]


# ---------------------------------------------------------------------- pure


def piece(rank: int, offset: tuple[int, ...], shape: tuple[int, ...]) -> Piece:
    return Piece(f"shards-{0:016x}/rank-{rank:05}.safetensors", offset, shape)


def test_boxes_overlap_where_they_share_elements() -> None:
    assert overlap(((0, 0), (2, 3)), ((1, 1), (4, 4))) == ([1, 1], [1, 2])
    assert overlap(((0, 0), (2, 3)), ((2, 0), (2, 3))) is None
    assert overlap(((), ()), ((), ())) == ([], [])


def test_pieces_must_make_up_the_whole_once() -> None:
    halves = (piece(0, (0, 0), (2, 3)), piece(1, (2, 0), (2, 3)))
    check("w", StoredTensor("float32", (4, 3), halves))
    check("n", StoredTensor("float32", (), (piece(0, (), ()),)))
    with pytest.raises(CheckpointError, match=r"w .* has 6 of its 12 elements"):
        check("w", StoredTensor("float32", (4, 3), halves[:1]))
    with pytest.raises(CheckpointError, match="elements twice"):
        check("w", StoredTensor("float32", (4, 3), (*halves, piece(2, (1, 1), (2, 1)))))
    with pytest.raises(CheckpointError, match="outside it"):
        check("w", StoredTensor("float32", (3, 3), halves))


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
        model, optimizer, grid = setting(world, (1, 1))
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
    model, optimizer, grid = setting(world, (1, 2))
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
