"""Load from C programs, so that the client is not what is measured: wrk over REST, h2load over gRPC."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Written by wrk as it ends; latencies in microseconds.
_REPORT = """
done = function(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format('REPORT {"requests": %d, "seconds": %f, "p50": %f, "p99": %f, "failed": %d}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.timeout + errors.status))
end
"""


@dataclass(frozen=True, kw_only=True)
class Load:
    """Requests a second and latencies in milliseconds; `failed` are those that were not answered with 200."""

    rate: float
    p50_ms: float
    p99_ms: float
    failed: int
    requests: int


def require(*programs: str) -> None:
    """Raise SystemExit that names the packages where a program is absent."""
    packages = {"wrk": "wrk", "h2load": "nghttp2-client", "nginx": "nginx-light", "haproxy": "haproxy"}
    if missing := [packages[program] for program in programs if find(program) is None]:
        raise SystemExit(f"This part of the benchmark needs: apt-get install {' '.join(missing)}")


def find(program: str) -> str | None:
    """Where a program is; some are where only root looks."""
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")


def over_rest(
    url: str,
    body: str,
    *,
    clients: int,
    seconds: float,
    headers: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
) -> Load:
    """POST the body again and again, each client one request at a time on a connection that it keeps.

    wrk takes whole seconds.
    """
    sent = {"Content-Type": "application/json", **(headers or {})}
    script = f"wrk.method = 'POST'\nwrk.body = {json.dumps(body)}\n"
    script += "".join(
        f"wrk.headers[{json.dumps(name)}] = {json.dumps(value)}\n" for name, value in sent.items()
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "post.lua"
        file.write_text(script + _REPORT)
        options = ["--threads=1", f"--connections={clients}", f"--duration={seconds:g}s", "--timeout=30s"]
        command = [*prefix, "wrk", *options, f"--script={file}", url]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    report = json.loads(output.partition("REPORT ")[2])
    return Load(
        rate=report["requests"] / report["seconds"],
        p50_ms=report["p50"] / 1000,
        p99_ms=report["p99"] / 1000,
        failed=report["failed"],
        requests=report["requests"],
    )


def over_grpc(
    url: str,
    message: bytes,
    *,
    clients: int,
    seconds: float,
    headers: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
) -> Load:
    """The same with unary calls, each client on a connection of its own; the URL's path is the method."""
    sent = {"content-type": "application/grpc", "te": "trailers", **(headers or {})}
    with tempfile.TemporaryDirectory() as folder:
        body, log = Path(folder) / "body", Path(folder) / "log"
        body.write_bytes(b"\0" + len(message).to_bytes(4, "big") + message)
        command = [
            *(*prefix, "h2load", "--threads=1", f"--clients={clients}", "--max-concurrent-streams=1"),
            *(
                f"--duration={round(1000 * seconds)}ms",
                "--warm-up-time=0",
                f"--data={body}",
                f"--log-file={log}",
            ),
            *(f"--header={name}: {value}" for name, value in sent.items()),
            url,
        ]
        subprocess.run(command, capture_output=True, check=True)
        rows = [line.split("\t") for line in log.read_text().splitlines()]
    times = sorted(int(row[2]) / 1000 for row in rows if row[1] == "200")
    return Load(
        rate=len(times) / seconds,
        p50_ms=times[len(times) // 2],
        p99_ms=times[int(len(times) * 0.99)],
        failed=len(rows) - len(times),
        requests=len(rows),
    )
