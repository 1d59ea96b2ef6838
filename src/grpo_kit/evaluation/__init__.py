"""Rows sampled outside of training and judged: held-out accuracy, how hard they are."""
