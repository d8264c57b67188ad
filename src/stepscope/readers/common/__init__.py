"""Decoders that several formats share."""
