"""States of sequences on disk: one file each, found by what was read, within a limit.

Knows names, arrays and files; knows no graph, no prompt and no conversation.
"""
