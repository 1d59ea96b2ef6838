"""A run's directory: what is written in it, read from it, and gone on from."""
