"""Building blocks that compare the ranks of a job."""
