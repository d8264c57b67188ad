"""Sockets and jobs of `stepscope attach`."""
