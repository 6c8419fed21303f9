"""MindSpore Lite 2.0.0 exists for Python 3.7 only: without one there is nothing to collect here."""

from __future__ import annotations

from tests.lite.environment import python37

collect_ignore = [] if python37() else ["test_genuine_converter.py"]
