"""Watching a training script that is not ours to change: finding its model and running it as if we were not there."""
