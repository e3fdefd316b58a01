"""Training runs: what determines them, their folders, checkpoints and devices."""
