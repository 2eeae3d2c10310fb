"""The model and the plan that `fits` and `predict` are asked about: options, and a `config.json`.

Sizes come from the `config.json` that transformers writes. A key that may change the sizes and
isn't known here is refused by name, so that no sum is wrong without a word; `--ignore KEY` accepts
it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import msgspec

from costlab.layouts.model import (
    LayoutError,
    Model,
    Plan,
    check,
    data_ranks,
    pieces_with_ends,
    refuse,
)
from costlab.layouts.runs import CARDS

LARGEST_FILE = 1 << 20  # bytes
FACTS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("fits.toml").read_text("utf-8")
)
SIZES, FAMILIES, IGNORED = FACTS["sizes"], FACTS["families"], set(FACTS["ignored"]["keys"])
PROGRAMS: dict[str, dict[str, Any]] = FACTS["programs"]
OF_EXPERTS = ("top_k", "expert_ffn", "shared_ffn", "dense_layers")


def read_config(path: Path, ignored: Collection[str] = ()) -> dict[str, Any]:
    """Return the settings of `Model` that a `config.json` has.

    Args:
        path: the file, or the folder that has it.
        ignored: unknown keys to accept.

    Raises:
        LayoutError: the file is no such config, its kind is unknown, or it has unknown keys.

    """
    file = path / "config.json" if path.is_dir() else path
    try:
        refuse((file.exists() and not file.is_file(), f"{file}: this is no file"))
        refuse((file.stat().st_size > LARGEST_FILE, f"{file}: larger than a config.json can be"))
        keys = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise LayoutError(f"{file}: can't be read: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LayoutError(f"{file}: this is no config.json: {error}") from None
    kind = str(keys.get("model_type"))
    known = {name for names in SIZES.values() for name in names} | IGNORED
    unknown = sorted(keys.keys() - known - set(ignored))
    refuse(
        (kind not in FAMILIES,
         f"{file}: model_type {kind!r} is unknown; choose one of {', '.join(FAMILIES)}, or name "
         "the sizes as options"),
        (unknown,
         f"{file}: unknown keys {', '.join(map(repr, unknown[:8]))}: if they change no size, add "
         f"{' '.join(f'--ignore {key}' for key in unknown[:8])}"),
    )  # fmt: skip
    settings = dict(FAMILIES[kind])
    for name, names in SIZES.items():
        value = next((keys[key] for key in names if keys.get(key) is not None), None)
        if value is None:
            continue
        whole = isinstance(value, int) and not isinstance(value, bool)
        refuse((not whole, f"{file}: {names[0]} = {value!r} is no whole number"))
        settings[name] = value
    for name in ("layers", "hidden", "heads", "vocabulary"):
        refuse((name not in settings, f"{file}: {SIZES[name][0]} is missing"))
    return settings | _switches(file, keys, kind)


def _switches(file: Path, keys: dict[str, Any], kind: str) -> dict[str, Any]:
    for name in ("tie_word_embeddings", "mlp_bias", "attention_bias"):
        refuse((not isinstance(keys.get(name), bool | None),
                f"{file}: {name} = {keys.get(name)!r} is neither true nor false"))  # fmt: skip
    positions = keys.get("n_positions", 1024)
    refuse(
        (type(positions) is not int, f"{file}: n_positions = {positions!r} is no whole number"),
        (keys.get("decoder_sparse_step", 1) != 1 or keys.get("mlp_only_layers"),
         f"{file}: layers without experts between layers with experts aren't supported"),
        (keys.get("mlp_bias") or (keys.get("attention_bias") and not FAMILIES[kind].get("bias", 1)),
         f"{file}: biases aren't supported for a {kind}; name its sizes as options, with --bias"),
    )  # fmt: skip
    switches = {"tied": keys.get("tie_word_embeddings"),
                "positions": positions if kind == "gpt2" else None}  # fmt: skip
    return {name: value for name, value in switches.items() if value is not None}


def model_from(path: Path | None, ignored: Collection[str], named: dict[str, Any]) -> Model:
    """Return the model of a `config.json`, with the sizes that options name instead.

    Raises:
        LayoutError: a size is missing, or impossible.
    """
    settings = read_config(path, ignored) if path else {}
    settings |= {name: value for name, value in named.items() if value is not None}
    for name in ("layers", "hidden", "heads", "vocabulary"):
        refuse((name not in settings, f"--{name} is missing: name it, or a --config that has it"))
    for name in OF_EXPERTS if not settings.get("experts") else ():
        option = name.replace("_", "-")
        refuse((named.get(name), f"{option} = {named.get(name)} of 0 experts: name --experts, too"))
    return Model(**settings)


TYPES = {"int": int, "str": str, "bool": bool}
MOST_MEASURED = 1 << 20  # GiB, or seconds
Command = Callable[..., int]


def layout_options(measured: str, *tables: str) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the options of a model and a plan.

    Args:
        measured: what `--measured` names: "gib" or "seconds".
        tables: tables of `fits.toml` with further options.
    """

    def add(command: Command) -> Command:
        options = [
            click.option("--card", required=True, type=click.Choice(list(CARDS))),
            click.option("--config", type=click.Path(path_type=Path, exists=True),
                         help="A model's config.json; options go before it."),
            click.option("--ignore", multiple=True, metavar="KEY",
                         help="An unknown key of config.json."),
        ]  # fmt: skip
        for table in ("model", "plan", *tables):
            for name, settings in FACTS["options"][table].items():
                kind = settings.get("type", "int")
                kind = click.Choice(kind) if isinstance(kind, list) else TYPES[kind]
                shown = {"default": None, "show_default": "default" in settings}
                options.append(click.option(f"--{name}", **{**shown, **settings, "type": kind}))
        options += [
            click.option("--measured", multiple=True, metavar=f"[NAME=VALUE,…,{measured}=]NUMBER",
                         help="An own run of this layout, or of one that differs by the options "
                         "that are named; may be repeated."),
            click.option("--output-format", type=click.Choice(["text", "json"]), default="text",
                         show_default=True),
        ]  # fmt: skip
        for option in reversed(options):
            command = option(command)
        return command

    return add


def parse_measured(
    texts: Iterable[str], unit: str, named: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Any], float]]:
    """Yield the options of each own run and its number, of `41.3` or `tensor=4,…,gib=41.3`.

    Raises:
        LayoutError: a name or a number is impossible.
    """
    kinds = {param.name: param.type for param in click.get_current_context().command.params}
    kinds = {unit: click.FLOAT, **{name: kinds[name] for name in named}}
    for text in texts:
        own: dict[str, Any] = {}
        for part in (text if "=" in text else f"{unit}={text}").split(","):
            key, _, value = part.partition("=")
            name = key.strip().replace("-", "_")
            refuse((name not in kinds or name in own,
                    f"--measured {text!r}: write {unit}=NUMBER after NAME=VALUE,… with the names "
                    f"of options, each once, as tensor=4,micro_batch=2,{unit}=41.3"))  # fmt: skip
            try:
                own[name] = kinds[name].convert(value.strip(), None, None)
            except click.BadParameter as fault:
                raise LayoutError(f"--measured {text!r}: {name}: {fault.message}") from None
        measured = own.pop(unit, 0)
        refuse((not 0 < measured < MOST_MEASURED, f"--measured {text!r}: {unit} must be a number "
                f"above 0 and below {MOST_MEASURED:,}"))  # fmt: skip
        yield {**named, **own}, measured


def read_layout(named: Mapping[str, Any]) -> tuple[Model, Plan]:
    """Return the model and the plan that options name, with a program's habits if one is named.

    Raises:
        LayoutError: one of them, or both together, are impossible.
    """
    given = {name: value for name, value in named.items() if value is not None}
    of_model, of_plan = ({field.name for field in fields(kind)} for kind in (Model, Plan))
    model = model_from(given.get("config"), given["ignore"],
                       {name: given[name] for name in given.keys() & of_model})  # fmt: skip
    settings: dict[str, Any] = dict(PROGRAMS.get(given.get("program", ""), {}))
    program = given.get("program") or given.get("stack", "")
    settings["zero"] = 3 if program.startswith("fsdp") else 0
    settings |= {name: given[name] for name in given.keys() & of_plan - of_model}
    tensor, stages, context = (settings[axis] for axis in ("tensor", "stages", "context"))
    settings["data"] = data_ranks(given["ranks"], tensor, stages, context)
    settings.setdefault("global_batch", max(1, settings["data"] * settings["micro_batch"] * stages))
    if (layers := given.get("layers_of_stages")) is not None:
        whole = re.fullmatch(r"[0-9]{1,6}( *, *[0-9]{1,6})*", layers)
        refuse((not whole, f"--layers-of-stages {layers[:80]!r}: write whole numbers, as 10,12,10"))
        settings["layers"] = tuple(int(part) for part in layers.split(","))
    else:
        settings["layers"] = pieces_with_ends(model.layers, stages * settings["chunks"])
    plan = Plan(**settings)
    check(model, plan)
    return model, plan
