"""Measurements, run by hand. Not tests: nothing here passes or fails."""
