"""Opening, storing and caching runs."""
