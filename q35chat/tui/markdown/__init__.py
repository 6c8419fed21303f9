"""Markdown as lines of styled text: parser, layout, wrapping."""
