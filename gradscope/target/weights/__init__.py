"""--weights: reading checkpoints without running code, and fitting them to the model."""
