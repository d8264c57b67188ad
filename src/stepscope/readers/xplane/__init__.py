"""XPlane files of JAX and TensorFlow."""
