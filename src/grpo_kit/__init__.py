"""grpo-kit: train a small reasoning model with GRPO on one GPU."""

__version__ = "0.1.0"
