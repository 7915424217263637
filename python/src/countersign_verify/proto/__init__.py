"""What crosses a wire: raw, batches, statements, JSON, event streams. It imports nothing else of this package."""
