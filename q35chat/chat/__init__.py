"""Conversations as values: turns, prompts from the checkpoint's own template, events.

Knows the engine; knows no runtime and no screen.
"""
