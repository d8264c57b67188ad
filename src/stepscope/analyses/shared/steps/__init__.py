"""Building blocks about steps: their device part, their phases, and what was recorded of them."""
