"""What the commands do, one module each, and how they show it.

`cli` turns arguments into calls of these; they compose chat, runtimes, bundle and export, and
import what is heavy only when they run.
"""
