"""What megatron-core calls our parameters."""

OURS_TO_THEIRS = {
    "word_embedding": "embedding.word_embeddings",
    "position_embedding": "embedding.position_embeddings.weight",
    "final_norm": "decoder.final_layernorm",
    "head": "output_layer",
    "layers": "decoder.layers",
    ".norm1": ".input_layernorm",
    ".attention.qkv": ".self_attention.linear_qkv",
    ".attention.proj": ".self_attention.linear_proj",
    ".norm2": ".pre_mlp_layernorm",
    ".mlp.fc1": ".mlp.linear_fc1",
    ".mlp.fc2": ".mlp.linear_fc2",
}


def theirs_by_ours(name: str) -> str:
    """What Megatron calls our parameter."""
    for ours, their_name in OURS_TO_THEIRS.items():
        if name.startswith(ours) or ours.startswith("."):
            name = name.replace(ours, their_name, 1)
    return name
