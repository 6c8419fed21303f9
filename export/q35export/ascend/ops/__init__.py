"""Fused operators of the 310P target, one a file: the attributes its kernel is called by, and what
it computes, in numpy, side by side."""
