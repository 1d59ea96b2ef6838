"""A model: its weights, what it samples, the log-probabilities it gives."""
