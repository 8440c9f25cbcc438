"""What the sizes in a configuration are shrunk to, by what their names say they are.

The first pattern that is found in a name decides; a size is never enlarged. All widths become the same, so that parts
which project into one another keep fitting.
"""

from __future__ import annotations

import re

VOCAB, WIDTH, INNER, HEADS, KEY_VALUE_HEADS, HEAD_DIM, LAYERS = 256, 64, 128, 4, 2, 16, 2
HIGHEST_ID = VOCAB - 1
"""The last id of the small vocabulary; special tokens get ids from here downwards."""

_TABLE: tuple[tuple[str, int], ...] = (
    # depth
    (r"nextn_predict|mtp_.*layers|num_mtp|kv_shared_layers|num_denoising", 0),
    (r"first_k_dense|num_dense_layers", 1),
    (
        r"^(n|num)?_?((text|speech|hidden|encoder|decoder|t2u_encoder|t2u_decoder|speech_encoder|attention)_)*(layers?)$",
        LAYERS,
    ),
    (
        r"^(n_layers?|num_(\w+_)?layers|(\w+_)?(encoder|decoder)_num_layers|\w+_num_hidden_layers|\w*depth|num_(\w+_)?blocks)$",
        LAYERS,
    ),
    # heads and their sizes
    (r"qk_rope_head_dim|qk_nope_head_dim|rope_head_dim|rotary_dim$", 8),
    (r"head_dim|d_kv$|d_head$|dim_head$|head_size$|headdim$|dim_per_head", HEAD_DIM),
    (r"mamba_(n|num)_heads|ssm.*heads", 8),
    (r"key_value_heads|kv_heads|kv_n_heads|linear_num_key_heads|attention_num_groups", KEY_VALUE_HEADS),
    (r"heads$|n_head$|num_head$", HEADS),
    # latent attention, state spaces, experts
    (r"(q|kv)_lora_rank", 32),
    (r"lora_rank|o_groups", 16),
    (r"index_topk", 16),
    (r"d_state$|state_size$|ssm_state", 8),
    (r"n_groups?$|num_groups$|topk_group", 1),
    (r"experts_per_tok|(^|_)(top_?k|k)$|moe_topk", 2),
    (r"shared_experts?$|num_shared", 1),
    (r"experts$|expert_num", 4),
    (r"moe_.*(intermediate|ffn)|expert.*(intermediate|ffn|dim)|shared_expert", 32),
    # widths
    (r"(intermediate|inner|feed_?forward|ffn|mlp|linear_units|d_ff|dim_ff|dff)\w*$", INNER),
    (r"hidden_size_per_layer_input", 16),
    (r"^hidden_size_global$", WIDTH),
    (
        r"^(\w+_)?(hidden_size|d_model|n_embd|embed_dim|embeds?_dim|embedding_size|embedding_dim|embed_size|hidden_dim|emb_dim|"
        r"model_dim|projection_dim|proj_size|projection_size|project_dim|proj_dim|width|output_dim|out_dim|attention_hidden_size)$",
        WIDTH,
    ),
    (r"^dim$|upsample_groups", WIDTH),
    # lengths and vocabularies
    (r"entity_vocab_size", 50),
    (r"vocab_size|hash_byte_group_vocab", VOCAB),
    (r"max_2d_position", 10**9),
    (r"max_(source_|target_)?positions?(_embeddings)?$|n_positions|n_ctx|max_seq_len|max_sequence_length", 128),
    (r"num_position_embeddings|position_embedding_size", 64),
    (r"chunk_\w*context$", 2),
    (r"sliding_window|attention_window|local_attention|local_window|chunk_size|chunk_length|block_size", 8),
    (r"num_queries|num_query_tokens|latent_query|num_latents", 8),
    (r"train_num_points", 64),
    (r"num_frames|frames_per_clip", 4),
)
TABLE = tuple((re.compile(pattern), size) for pattern, size in _TABLE)
"""The sizes that names stand for, with their patterns compiled."""
HIERARCHICAL = re.compile(r"heads$|hidden_sizes$|embed_dims?$|dims$|channels$|widths$|hidden_size$|embed_dim$")
"""A configuration with a list of such sizes, one a stage, is left its widths: the stages hang together."""
DEPTH_ONLY = re.compile(r"layers?$|depth$|blocks$|experts$|vocab_size|denoising|nextn|mtp")
"""What is shrunk where shrinking the widths breaks a model."""
SPECIAL_ID = re.compile(r"(token_id|token_index|_id|_index)s?$")
"""Settings that hold the id of a special token."""
PLACEHOLDER_ID = re.compile(r"^(image|audio|video)_token_(id|index)$")
"""The token that stands in a text for something else; some models compare with it whether it is set or not."""
DEPTHS = re.compile(
    r"^(depths|num_blocks|layers|num_layers|layer_depths|blocks_per_stage|num_block_repeats|stage_num_blocks)$"
)
"""Settings that hold numbers of layers, one for every stage."""
RANDOM_DEPTH = re.compile(r"layer_?drop")
"""Randomly left-out layers would make the gradient of a two-layer model a matter of luck."""


def smaller(name: str, size: int, *, depth_only: bool = False) -> int:
    """Return what a size is shrunk to; itself where its name says nothing."""
    if depth_only and not DEPTH_ONLY.search(name):
        return size
    return next((min(size, small) for pattern, small in TABLE if pattern.search(name)), size)
