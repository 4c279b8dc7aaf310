"""How sure a number of a run is: intervals, what too few samples cannot carry, and differences."""
