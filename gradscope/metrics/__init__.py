"""Metrics: pure functions and frozen data from a recording; no torch, no judgement."""
