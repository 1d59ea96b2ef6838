"""Rows: read, filled into prompts, rendered by the model's template, scanned."""
