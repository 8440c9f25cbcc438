"""What the model did, read from its autograd graph: its residual additions, its blocks and the stream through them."""
