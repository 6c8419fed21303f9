"""The decode engine: fixed capacity, double-buffered states, one step at a time.

Knows numpy and the `GraphSession` protocol; knows no runtime, no tokenizer and no screen.
"""
