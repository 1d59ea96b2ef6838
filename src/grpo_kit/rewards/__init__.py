"""Reward functions: found, checked, and called in processes of their own."""
