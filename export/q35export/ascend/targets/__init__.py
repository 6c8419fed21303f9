"""The operators of the 310P, fused and not."""
