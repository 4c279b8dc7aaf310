"""Fit GPU profiles to public measurements."""
