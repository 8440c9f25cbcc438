"""The output formats of `gradscope check` and `inspect`, one file each."""
