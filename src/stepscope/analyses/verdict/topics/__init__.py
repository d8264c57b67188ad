"""The conclusions of each topic: one module per topic, with a function that yields its messages."""
