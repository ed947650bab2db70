"""The rules, one a file; each file's `RULES` are found by `pack.registry`."""
