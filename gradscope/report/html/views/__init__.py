"""One file per view: each turns facts into a panel of pictures, tables and words."""
