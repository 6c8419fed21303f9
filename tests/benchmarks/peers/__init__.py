"""q35chat against other programs on one checkpoint, in alternation; see `__main__`."""
