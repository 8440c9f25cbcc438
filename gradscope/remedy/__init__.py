"""Remedies: changes that are tried on the loaded model, and ranked by what they measurably do.

Everything is put on from outside, with hooks and redrawn weights, and taken off again: the user's code is not changed.
"""

from gradscope.remedy.catalog import REMEDIES, Remedy, find
from gradscope.remedy.suggestions import Suggestions, Trial, suggest

__all__ = ["REMEDIES", "Remedy", "Suggestions", "Trial", "find", "suggest"]
