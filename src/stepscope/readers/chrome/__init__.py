"""Chrome and Kineto JSON traces."""
