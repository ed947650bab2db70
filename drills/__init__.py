"""Drills: what operators do and what breaks, under constant load, on a real engine and a real Envoy."""
