"""Jobs that hang: which rank the others wait for, and in which collective."""
