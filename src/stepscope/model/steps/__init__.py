"""Steps: which spans mark them, which spans belong to them, and the windows of a recording."""
