"""SQL over the tables of a trace."""
