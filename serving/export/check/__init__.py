"""What `gpt1 check` finds out about an export."""
