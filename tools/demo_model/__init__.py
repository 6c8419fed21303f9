"""Makes the demo model: a tiny Qwen3.5, trained from scratch on data that code here writes.

`python -m tools.demo_model make` builds tokenizer, data and weights from one seed,
`evaluate` measures a folder, `report` prints what the last run measured.
Only `batches`, `model`, `quantise`, `train`, `evaluate` and the command line import torch.
"""
