"""`make api-keys`: turns lines `client=key` into the file `api-keys.yaml` that a Secret of a cluster holds.

Runs in the virtual environment (`.venv/bin/python -m ops.api_keys < keys`); writes to its output alone.
"""

import sys
from collections.abc import Iterable

from ops.errors import UserError


def api_keys_text(lines: Iterable[str]) -> str:
    """The file, as Envoy reads it. Raises UserError for lines that are none; no message holds a key."""
    from pydantic import ValidationError

    from components.edge_settings import ApiKey, Auth
    from components.envoy_edge import api_keys_file, filled

    keys: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        client, equals, key = line.strip().partition("=")
        if not client and not equals:
            continue
        if not equals or client in keys:
            raise UserError(f"line {number}: accepted: <client>=<key>, each client once")
        keys[client] = key
    if not keys:
        raise UserError("no keys: type a line <client>=<key> for each client")
    names = {client: f"key_{position}" for position, client in enumerate(keys)}
    try:
        known = tuple(
            ApiKey.model_validate({"client": client, "key": name}) for client, name in names.items()
        )
    except ValidationError as error:
        raise UserError(
            f"clients are named in lower-case letters, digits and '-': {', '.join(keys)}"
        ) from error
    if len(set(keys.values())) < len(keys):
        raise UserError("two clients have the same key")
    try:
        return filled(
            api_keys_file(Auth(api_keys=known)), {names[client]: key for client, key in keys.items()}
        )
    except ValueError as error:
        raise UserError(str(error)) from error


def main() -> int:
    """Read from the input, print to the output; 1 with the reason where that fails."""
    try:
        print(api_keys_text(sys.stdin), end="")
    except UserError as error:
        print(f"make api-keys: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
