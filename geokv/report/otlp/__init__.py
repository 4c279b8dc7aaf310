"""Requests of a finished run as OpenTelemetry traces."""
