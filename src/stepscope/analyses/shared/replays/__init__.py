"""Building blocks that replay steps with changed durations."""
