"""Where the loss comes from: given, returned, the model's own, named in the file, chosen by shapes, or made up."""
