"""What keeps an audit from judging."""


class AuditError(Exception):
    """A problem with what was handed over, as its message; nothing was judged."""
