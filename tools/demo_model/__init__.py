"""Makes the demo model: a tiny Qwen3.5 trained from scratch on data that this package draws and writes.

`python -m tools.demo_model make` builds tokenizer, data and weights from one seed,
`evaluate` measures a folder, `report` prints what the last run measured.
Only `model`, `quantise`, `train` and `evaluate` import torch.
"""
