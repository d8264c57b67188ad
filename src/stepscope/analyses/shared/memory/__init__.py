"""Building blocks about device memory."""
