"""Find inputs for a model from the model alone: its signature, its first layers, and what its errors say."""
