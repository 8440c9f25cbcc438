"""Real architectures of torchvision, timm and transformers, inspected by target string alone."""
