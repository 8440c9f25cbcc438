"""What single model types need beyond the common rules: sizes that hang together in ways no name tells.

Each entry is a fact about that architecture, found by reading its configuration and modelling files. It is here because
the type cannot be built or fed without it, or only at a hundred times the size.
"""

from __future__ import annotations

from typing import Any

_SERIES = {"prediction_length": 4, "context_length": 8, "lags_sequence": [1, 2, 3], "num_time_features": 1}
"""A short time series with lags: long enough for the lags, short enough for a step of milliseconds."""
_SAM_WIDTH = {"hidden_size": 256}  # the decoder's upscaling is tied to it

FACTS: dict[str, dict[str, Any]] = {
    "autoformer": {**_SERIES, "moving_average": 3, "label_length": 4},  # of the context, repeated for the decoder
    "informer": _SERIES,
    "time_series_transformer": _SERIES,
    "audio-spectrogram-transformer": {"max_length": 64, "num_mel_bins": 32},
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "wav2vec2-bert": {"vocab_size": 32},
    "zamba": {  # its attention sees two widths side by side
        "attention_hidden_size": 128, "attention_head_dim": 32, "mamba_dt_rank": 4, "n_mamba_heads": 2,
    },
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2},
    "mamba2": {"num_heads": 8, "head_dim": 16, "expand": 2, "n_groups": 1},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 10000.0}, "n_heads": 4},
    "longcat_flash": {"head_dim": 8, "num_key_value_heads": 4},
    "deepseek_v2": {"num_experts_per_tok": 2, "num_key_value_heads": 4},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "aria": {"projector_patch_to_query_dict": {16: 8}},  # queries by the number of patches
    "gemma3n_text": {
        "num_kv_shared_layers": 0, "num_hidden_layers": 3, "intermediate_size": [128, 128, 128], "laurel_rank": 8,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "activation_sparsity_pattern": [0.9, 0.0, 0.0],
    },
    "llama4_vision_model": {"intermediate_size": 256, "projector_input_dim": 64},  # its adapter joins four patches
    "reformer": {
        "axial_pos_shape": [4, 8], "axial_pos_embds_dim": [32, 32], "feed_forward_size": 128, "attention_head_size": 16,
        "attn_layers": ["local", "lsh", "local", "lsh"], "num_buckets": 2, "lsh_attn_chunk_length": 8,
        "local_attn_chunk_length": 8, "num_hidden_layers": 4, "is_decoder": False,
    },
    "sam_prompt_encoder": _SAM_WIDTH,
    "sam_hq_prompt_encoder": _SAM_WIDTH,
    "sam_mask_decoder": {**_SAM_WIDTH, "num_attention_heads": 8},
    "sam2_mask_decoder": {**_SAM_WIDTH, "num_attention_heads": 8},
    "sam_hq_mask_decoder": {**_SAM_WIDTH, "num_attention_heads": 8, "vit_dim": 64},
    "sam2_prompt_encoder": {**_SAM_WIDTH, "image_size": 128, "patch_size": 16},
    "sam2_hiera_det_model": {
        "hidden_size": 96, "embed_dim_per_stage": [96, 192, 384, 768], "image_size": [128, 128],
        "num_attention_heads": 1, "blocks_per_stage": [1, 1, 2, 1],
    },
    "efficientnet": {"hidden_dim": 2560},
    "efficientloftr": {"hidden_size": 256},
    "lilt": {"hidden_size": 96, "channel_shrink_ratio": 4},
    "layoutlmv3": {"coordinate_size": 12, "shape_size": 8},  # four and two of them make the width
    "vitpose_backbone": {"image_size": [32, 32], "patch_size": [8, 8]},
    "lw_detr_vit": {"image_size": 64, "patch_size": 8, "num_windows": 4, "num_windows_side": 2},
    "timm_backbone": {"backbone": "resnet18"},
    "xmod": {"default_language": "en_XX"},  # else ids of languages are made up
    "clvp_encoder": {"projection_dim": 64},
    "pix2struct_text_model": {"initializer_range": 0.02},
}  # fmt: skip
"""Configuration values by model type; they also hold where the type is a part of a composite model."""

FIRST_CLASS: dict[str, str] = {
    "reformer": "ReformerForMaskedLM",
    "albert": "AlbertForMaskedLM",
    "xlnet": "XLNetLMHeadModel",
    "vit_mae": "ViTMAEForPreTraining",
    "perceiver": "PerceiverForMaskedLM",
}
"""The class to take first where the usual order of heads does not lead to one that runs alone."""
