"""Rules for the recording itself."""
