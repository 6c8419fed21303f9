"""The terminal application: draws what a `Workspace` says and holds no logic of its own."""
