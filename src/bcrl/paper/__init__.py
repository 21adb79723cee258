"""One module per table and figure of the paper."""
