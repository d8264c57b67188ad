"""Rules for kernels and operators of the device."""
