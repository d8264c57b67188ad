"""Raw Ascend `PROF_*` directories."""
