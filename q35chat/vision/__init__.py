"""From a picture file to what the vision graph takes: safe loading, resizing, patches, geometry.

Knows the checkpoint's picture rules; knows no graph, no prompt and no screen.
"""
