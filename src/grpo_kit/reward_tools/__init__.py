"""What can be said about rewards outside of a run: listed, tested and attacked, and replayed on a run's samples."""
