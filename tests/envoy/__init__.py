"""Tests against a real Envoy on loopback, with servers behind it that misbehave on demand."""
