"""One run against another: the same cells, the same arms, how much they differ and how surely."""
