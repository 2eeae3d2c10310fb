"""The options that `fits` and `predict` share, and the model and plan that they name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from costlab.layouts.model import (
    LayoutError,
    Model,
    Plan,
    check,
    data_ranks,
    pieces_with_ends,
    refuse,
)
from costlab.layouts.model_config import FACTS, PROGRAMS, model_from
from costlab.layouts.runs import CARDS

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
