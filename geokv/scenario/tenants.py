"""The tenants of every run, by the names that records and rate caps have for them."""

TENANT = "tenant-0"
"""Whose requests are measured."""
OTHER_TENANT = "tenant-1"
"""Asks only what control-foreign puts in the first one's place."""
TENANTS = (TENANT, OTHER_TENANT)
