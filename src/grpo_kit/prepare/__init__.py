"""All that is known before weights load."""
