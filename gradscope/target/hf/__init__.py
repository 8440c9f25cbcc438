"""Models of transformers from their type alone: a tiny configuration, a class with a loss, and inputs that fit."""
