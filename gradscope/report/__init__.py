"""Showing: the terminal report, the machine view and the output formats, all from a recording and its diagnosis."""
