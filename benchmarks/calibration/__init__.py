"""Which numbers at the start of training tell the networks that will not train: measured on several hundred of them."""
