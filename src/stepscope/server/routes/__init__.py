"""What the server answers below each address, beside the tables of `answers`."""
