"""How files and folders are written, so that a crash leaves none half there."""
