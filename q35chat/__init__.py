"""A terminal chat for Qwen3.5 with a decode engine of fixed capacity."""

import os

__version__ = "0.1.0"

# Nothing leaves this machine: both libraries report their use unless told otherwise, ONNX Runtime
# from the moment it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
