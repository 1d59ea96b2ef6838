"""Peak memory of a step, predicted by term."""
