"""From turns and pictures to the token ids that the model reads, and what of them is reused."""
