"""The commands behind the Makefile: set-up, up, preview, down, preflight, tests."""
