"""How many requests an instance answered, and how many with an error: the server's own count."""

import re
from dataclasses import dataclass

from ops.hosts import Host

# Inside the server's container, which has no curl: its metrics page, by bash alone.
_ASK = (
    "exec 3<>/dev/tcp/127.0.0.1/8501; "
    r"printf 'GET /monitoring/prometheus/metrics HTTP/1.0\r\n\r\n' >&3; cat <&3"
)
_COUNT = re.compile(r"^:tensorflow:serving:request_count\{([^}]*)\}\s+([0-9.e+]+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
# While a release is under way, a request that names the other version is passed on to who has it.
_NO_FAILURES = ("OK", "NOT_FOUND")


@dataclass(frozen=True)
class Answers:
    """Requests since a server began."""

    all: int = 0
    failed: int = 0

    def __add__(self, other: "Answers") -> "Answers":
        return Answers(self.all + other.all, self.failed + other.failed)

    def __str__(self) -> str:
        return f"{self.failed} of {self.all} answers of the new version failed ({self.failed_percent:.2g} %)"

    @property
    def failed_percent(self) -> float:
        """The share of errors; 0 where nothing was asked."""
        return 100 * self.failed / self.all if self.all else 0.0


def answers(host: Host, container: str, model: str) -> Answers | None:
    """What an instance counts for a model, health checks among it; None where it cannot be asked."""
    page = host.docker("exec", container, "/bin/bash", "-c", _ASK)
    return counted(page.stdout, model) if page.code == 0 else None


def counted(page: str, model: str) -> Answers:
    """The counts of a metrics page."""
    counts = Answers()
    for labels, number in _COUNT.findall(page):
        named = dict(_LABEL.findall(labels))
        if named.get("model_name") == model:
            count = round(float(number))
            counts += Answers(count, 0 if named.get("status") in _NO_FAILURES else count)
    return counts
