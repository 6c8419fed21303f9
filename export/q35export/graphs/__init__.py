"""Whole graphs: inputs, blocks in order, outputs."""
