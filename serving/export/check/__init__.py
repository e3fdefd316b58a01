"""What `serving.check` finds out about an export."""
