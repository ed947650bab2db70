"""The one exception that is meant for the person at the terminal."""


class UserError(Exception):
    """Says what is wrong and what to type next; printed without a traceback."""
