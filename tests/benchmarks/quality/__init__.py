"""How much of a model each format keeps; see `__main__`."""
