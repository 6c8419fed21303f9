"""Picture loading, resizing, patches and geometry."""
