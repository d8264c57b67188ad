"""Building blocks of the Ascend readers."""
