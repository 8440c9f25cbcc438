"""Seeing every call of a step: how modules are followed, and the rows in which what they did is kept."""
