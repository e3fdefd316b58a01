"""Programs that make models."""
