"""Building blocks about parallel dimensions: their groups, and the place of each rank in them."""
