"""The chat screen without its widgets: what is written, what runs, what is said."""
