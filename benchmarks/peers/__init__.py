"""The same steps under other tools, in an environment of their own: python -m benchmarks.peers."""
