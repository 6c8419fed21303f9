"""Exported bundles against golden files; no torch."""
