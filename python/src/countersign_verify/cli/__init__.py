"""The command `countersign`."""
