"""Recording of a training job."""
