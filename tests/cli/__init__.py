"""The command line: options, renderers, exit codes."""
