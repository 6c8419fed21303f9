"""What tests share: random checkpoints, the transformers reference, golden files."""
