"""Checkpoint in, bundle out: builds the ONNX graphs of a Qwen3.5 model without PyTorch."""
