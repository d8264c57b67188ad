"""Host files of a PROF directory."""
