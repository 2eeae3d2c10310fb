"""A model's sizes from the `config.json` that transformers writes.

A key that may change the sizes and isn't known here is refused by name, so that no sum is wrong
without a word. `--ignore KEY` accepts it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from costlab.layouts.model import LayoutError, Model, refuse

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
