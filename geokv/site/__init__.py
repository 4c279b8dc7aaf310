"""The processes of a data centre: its OpenAI-compatible front door, its worker, its KV server."""
