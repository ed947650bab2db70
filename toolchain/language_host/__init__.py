"""Runs Pulumi programs and policy packs in Python, for a Pulumi CLI that comes without its own language host.

It runs in an environment of its own, made from the lock file; only `run_program.py` runs in the project's.
"""
