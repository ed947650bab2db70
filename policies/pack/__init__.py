"""What rules are written with: plain views of resources, and the one place that knows the policy SDK."""
