"""Rules for communication between ranks."""
