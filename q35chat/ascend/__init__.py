"""The Ascend NPU: MindSpore Lite, its buffers and gears. Who runs on a CPU can skip it."""
