"""What a drill's history says beside its invariants: faults, fates, recovery, promises, verdict."""
