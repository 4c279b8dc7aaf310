"""The sheet of a drill, for people: what was to be shown, what was done, what was seen."""
