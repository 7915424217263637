"""Event streams, and what each folds into."""
