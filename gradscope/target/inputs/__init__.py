"""Where batches come from: given, returned, named in the file, known to the library, written out, or inferred."""
