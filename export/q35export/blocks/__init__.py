"""The parts of Qwen3.5, written once; a target answers with its operators."""
