"""Measuring a loaded model: speed, memory, what the engine adds, and what the memory would allow.

Works on a `Decoder`, whatever runs its graphs; knows no runtime, no tokenizer and no screen.
"""
