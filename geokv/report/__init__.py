"""What a run leaves to read: one output format per file."""
