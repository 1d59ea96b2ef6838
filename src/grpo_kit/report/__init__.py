"""`grpo-kit report`: a run as one HTML file that needs nothing but itself."""
