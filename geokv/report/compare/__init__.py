"""Runs beside each other: refuse what cannot be compared, and show the rest."""
