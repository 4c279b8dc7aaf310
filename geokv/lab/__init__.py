"""The network of a run: topology → integer plan → namespaces, fibres and their measurement."""
