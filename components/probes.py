"""Health checks that run inside a container, with nothing but the bash that the images have."""

from collections.abc import Sequence

PROBE_TIMEOUT_S = 5
"""How long a probe waits for each answer."""

# The images have no curl. Bash opens a socket by itself; the first line of the answer holds the status.
_SCRIPT = r"""port=$1; shift
for path in "$@"; do
  exec 3<>"/dev/tcp/127.0.0.1/$port" || exit 1
  printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$path" >&3
  read -r -t 5 status <&3 || exit 1
  [[ $status == HTTP/1.?" 200"* ]] || { echo "$path: $status"; exit 1; }
  exec 3>&-
done"""


def http_probe(port: int, paths: Sequence[str]) -> tuple[str, ...]:
    """A health check command that passes when every path on the loopback `port` answers 200."""
    return ("CMD", "/bin/bash", "-c", _SCRIPT, "probe", str(port), *paths)


def model_paths(models: Sequence[str]) -> tuple[str, ...]:
    """Paths that answer 200 only while a version of the model is loaded.

    The shorter status path will not do: it is 200 in every state, also while loading and after an error.
    """
    return tuple(f"/v1/models/{model}/metadata" for model in models)
