"""Makes a small language model of Qwen3.5's shape, to measure what quantisation does to one.

`python -m tools.language_model` reads documentation and code that are on this machine, trains a
tokenizer and 22 million weights from scratch, and writes a checkpoint folder. Nothing of it is
shipped: random weights have no structure to lose, and this model has.
"""
