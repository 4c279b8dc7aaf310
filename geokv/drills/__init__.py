"""Many drills at once, on the host: find them, run them side by side, hunt over seeds, shrink."""
