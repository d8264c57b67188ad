"""What rules are written with, and what runs and ranks them."""
