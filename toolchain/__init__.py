"""Gets Pulumi, its plugins, Go and the virtual environment; standard library only."""

import sys

# Before any other import: on an older Python those would end in a traceback.
if sys.version_info < (3, 11):  # noqa: UP036 this is where the minimum is enforced
    sys.exit(f"python3 is {sys.version.split()[0]} ({sys.executable}); 3.11 or later is needed")
