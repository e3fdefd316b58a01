"""The folder that a training run keeps: its options, checkpoints, history and result."""
