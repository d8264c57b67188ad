"""Chrome trace events from JSON text to rows, compiled: no Python object for each event."""
