"""Measurements beyond norms: one file a signal, each an Observer that the watcher calls from its own hooks."""
