"""A terminal chat for Qwen3.5 with a decode engine of fixed capacity."""

__version__ = "0.1.0"
