"""Device files of a PROF directory."""
