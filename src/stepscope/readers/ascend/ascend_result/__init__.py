"""`*_ascend_pt` and `*_ascend_ms` folders."""
