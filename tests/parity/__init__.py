"""Live comparison with transformers; every test here needs torch."""
