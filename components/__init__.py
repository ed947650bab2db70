"""Settings, plan, rendering and Pulumi components of a TensorFlow Serving deployment."""
