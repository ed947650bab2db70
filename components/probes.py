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


# The list is read each time: it changes under a server that runs.
_SERVING_SCRIPT = r"""port=$1 serving=$2; shift 2
while read -r model; do
  if [[ $model ]]; then set -- "$@" "/v1/models/$model/metadata"; fi
done <"$serving" || exit 1
"""


def serving_probe(port: int, serving: str) -> tuple[str, ...]:
    """A health check that passes when every model of a list in the container, a name a line, is loaded."""
    script = _SERVING_SCRIPT + _SCRIPT.partition("\n")[2]
    return ("CMD", "/bin/bash", "-c", script, "probe", str(port), serving)


def model_paths(models: Sequence[str]) -> tuple[str, ...]:
    """Paths that answer 200 only while a version of the model is loaded.

    The shorter status path will not do: it is 200 in every state, also while loading and after an error.
    """
    return tuple(f"/v1/models/{model}/metadata" for model in models)
