"""Out-of-band control of a run and collection of its records. Never on an emulated link."""
