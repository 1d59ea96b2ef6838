"""Before a run: can it learn, what will it cost, what to change."""
