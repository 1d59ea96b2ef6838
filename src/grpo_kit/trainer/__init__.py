"""TRL's GRPOTrainer: observed, faster, with the same gradients."""
