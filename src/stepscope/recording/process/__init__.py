"""What recording changes in the process of the job: patches, import hooks, signal handlers, and the runtime that owns them."""
