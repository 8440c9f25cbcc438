"""Who makes the claims that the experiments test."""

TUTORIAL = 'tutorial "Residual connections and Pre-LN"'
"""A chapter of a Chinese course on large models."""

HISTORY = 'article "From ResNet to GPT-4"'
"""A Chinese review of ten years of residual connections and LayerNorm."""

BOTH = "both articles"
