"""A model's sizes from the `config.json` that transformers writes.

A key that may change the sizes and isn't known here is refused by name, so that no sum is wrong
without a word. `--ignore KEY` accepts it.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from costlab.layouts.model import LayoutError, Model, refuse

LARGEST_FILE = 1 << 20  # bytes
# The names of each size, in the order in which they are looked up.
SIZES = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers"),
    "hidden": ("hidden_size", "n_embd", "n_embed", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads",),
    "head_size": ("head_dim",),
    "ffn": ("intermediate_size", "n_inner", "ffn_dim"),
    "vocabulary": ("vocab_size",),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "top_k": ("num_experts_per_tok",),
    "expert_ffn": ("moe_intermediate_size",),
    "shared_ffn": ("shared_expert_intermediate_size",),
}
LLAMA = {"gated": True, "tied": False, "norm": "rms", "bias": False}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "mistral": LLAMA,
    "mixtral": LLAMA,
    "qwen2": LLAMA | {"qkv_bias": True},
    "qwen2_moe": LLAMA | {"qkv_bias": True, "shared_gate": True},
    "qwen3": LLAMA | {"qk_norm": True},
    "qwen3_moe": LLAMA | {"qk_norm": True},
    "gpt2": {},
    "bloom": {"embedding_norm": True},
    "gpt_neox": {"tied": False},
}
# Keys that change no size: numbers of tokens, of the library, of drawing weights, of rotation.
IGNORED = set(
    """_name_or_path activation_function architectures attention_bias attention_dropout attn_pdrop
    attn_implementation bos_token_id classifier_dropout decoder_sparse_step dtype embd_pdrop
    eos_token_id hidden_act hidden_dropout initializer_range layer_norm_eps layer_norm_epsilon
    layer_types max_position_embeddings max_window_layers mlp_only_layers model_type n_ctx
    n_positions norm_topk_prob output_router_logits pad_token_id partial_rotary_factor
    pretraining_tp qkv_bias reorder_and_upcast_attn resid_pdrop rms_norm_eps rope_parameters
    rope_scaling rope_theta rotary_emb_base rotary_pct router_aux_loss_coef router_jitter_noise
    scale_attn_by_inverse_layer_idx scale_attn_weights sliding_window summary_activation
    summary_first_dropout summary_proj_to_labels summary_type summary_use_proj task_specific_params
    tie_word_embeddings torch_dtype transformers_version unk_token_id use_cache use_mrope
    use_parallel_residual use_sliding_window mlp_bias apply_residual_connection_post_layernorm
    attention_softmax_in_fp32 bias_dropout_fusion masked_softmax_fusion offset_alibi seq_length
    skip_bias_add skip_bias_add_qkv slow_but_exact hidden_dropout_prob""".split()  # noqa: SIM905
)


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
    switches = {}
    tied = keys.get("tie_word_embeddings")
    if tied is not None:
        switches["tied"] = bool(tied)
    if keys.get("attention_bias") and kind != "gpt_neox":
        switches["qkv_bias"] = True
    if kind == "gpt2":
        switches["positions"] = keys.get("n_positions", 1024)
    refuse(
        (keys.get("decoder_sparse_step", 1) != 1 or keys.get("mlp_only_layers"),
         f"{file}: layers without experts between layers with experts aren't supported"),
        (keys.get("mlp_bias"), f"{file}: mlp_bias isn't supported for this kind"),
        ((keys.get("rope_scaling") or {}) and not isinstance(keys["rope_scaling"], dict),
         f"{file}: rope_scaling is no object"),
    )  # fmt: skip
    return switches


def model_from(path: Path | None, ignored: Collection[str], named: dict[str, Any]) -> Model:
    """Return the model of a `config.json`, with the sizes that options name instead.

    Raises:
        LayoutError: a size is missing, or impossible.
    """
    settings = read_config(path, ignored) if path else {}
    settings |= {name: value for name, value in named.items() if value is not None}
    for name in ("layers", "hidden", "heads", "vocabulary"):
        refuse((name not in settings, f"--{name} is missing: name it, or a --config that has it"))
    return Model(**settings)
