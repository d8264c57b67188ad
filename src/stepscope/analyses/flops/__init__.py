"""Floating-point operations, and how near they come to the peak of the device."""
