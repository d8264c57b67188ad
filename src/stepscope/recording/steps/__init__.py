"""Which call ends a step."""
