"""``python -m geokv``."""

from geokv.cli import main

main()
