"""Fine-tuning and pre-training: what determines runs, their folders, checkpoints and devices."""
