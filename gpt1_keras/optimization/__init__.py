"""The paper's objectives, its Adam and schedules, and the training step."""
