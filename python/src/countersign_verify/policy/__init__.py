"""The options of a verification, and its verdict."""
