"""The gate: which findings count, what was known before, what got worse, and the exit code that follows."""
