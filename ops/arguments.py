"""Reads the words in ARGS of a command."""

import argparse
from typing import NoReturn

from ops.errors import UserError


class Parser(argparse.ArgumentParser):
    """argparse, whose findings are told as every other mistake of the user."""

    def error(self, message: str) -> NoReturn:
        """Raise UserError with what is wrong and what is accepted."""
        raise UserError(f"{message}\n{self.format_usage().strip()}")
