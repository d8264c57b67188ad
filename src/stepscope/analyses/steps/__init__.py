"""Steps: durations, phases, idle gaps, critical path."""
