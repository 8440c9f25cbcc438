"""Gradient flow of any PyTorch model: where gradients vanish or explode, why, and which change fixes it."""

__version__ = "0.1.0"
