"""The one error of this package: always a sentence for the person at the keyboard."""


class ToolchainError(Exception):
    """Set-up can't go on: what is wrong, where, and what to type next. Callers print it and exit 1."""
