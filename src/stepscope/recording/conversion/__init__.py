"""From captures and PROF directories to run folders and results."""
