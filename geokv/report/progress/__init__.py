"""What a run is doing, while it does it: on standard error, so that standard output stays the
result."""
