"""`python3 -m ops COMMAND`: what the Makefile's targets call."""

import sys

from ops.cli import main

sys.exit(main(sys.argv[1:]))
