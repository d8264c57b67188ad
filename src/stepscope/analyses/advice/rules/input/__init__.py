"""Rules for the input of the steps."""
