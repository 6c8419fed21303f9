"""One turn while it runs: read the prompt, step, choose, emit, stop."""
