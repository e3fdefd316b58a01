"""What one request may use, and how many may run and wait."""
