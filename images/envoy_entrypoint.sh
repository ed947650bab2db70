#!/bin/bash
# Options alone mean Envoy; anything else is a command of its own. Signals reach it: exec replaces this shell.
if [[ $# -eq 0 || $1 == -* ]]; then
    set -- envoy "$@"
fi
exec "$@"
