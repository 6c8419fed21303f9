"""What the commands do, one file each, and what they share: options, streams, how a turn is shown,
how a model is opened, how a failure ends.

They compose chat, runtimes, bundle and export, and import what is heavy only when they run.
"""
