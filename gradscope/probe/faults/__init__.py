"""Where a fault begins: the birthplace of a value that is not finite, the place of a cut graph, a step that failed."""
