"""Tables and traces in formats for files, for the browser and for notebooks."""
