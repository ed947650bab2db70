"""Named, constrained types of which settings are made: one rule each, tested once."""

import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

_CPU_RANGE = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")


def parse_cpus(text: str) -> frozenset[int]:
    """CPU numbers of a set written as Linux writes it: `0-15,64-79`.

    Raises ValueError for anything else, an empty set and a range that runs backwards.
    """
    cpus: set[int] = set()
    for part in text.split(","):
        match = _CPU_RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError("a CPU set is a list of numbers and ranges, such as 0-15,64-79")
        first = int(match[1])
        last = int(match[2] or first)
        if last < first:
            raise ValueError(f"the range {part.strip()} runs backwards")
        cpus.update(range(first, last + 1))
    return frozenset(cpus)


def format_cpus(cpus: Iterable[int]) -> str:
    """The shortest way to write a set of CPU numbers, ascending: the form the kernel prints."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1][1:] = [cpu]
        else:
            runs.append([cpu])
    return ",".join("-".join(str(end) for end in run) for run in runs)


def _normal_cpus(text: str) -> str:
    return format_cpus(parse_cpus(text))


_SOCKETS = [
    [*folder.split("/"), *name.split("/")]
    for folder in ("run", "var/run")
    for name in (
        "docker.sock",
        "podman/podman.sock",
        "containerd/containerd.sock",
        "crio/crio.sock",
        "docker/containerd/containerd.sock",
    )
]


def _model_path(text: str) -> str:
    if "://" in text:
        raise ValueError("models are read from a folder of the node; sync them there (no s3:// or gs://)")
    if not text.startswith(("/", "./")):
        raise ValueError(
            "give an absolute path of the node, or ./… in this project for a node on this machine"
        )
    if ":" in text or not text.isprintable():
        raise ValueError("a path that is mounted cannot hold ':' or a control character")
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError("'..' is not accepted; write the path out")
    if not parts:
        whole = "the root of the node" if text.startswith("/") else "this whole project"
        raise ValueError(f"give the model's own folder, not {whole}")
    if text.startswith("/") and any(socket[: len(parts)] == parts for socket in _SOCKETS):
        raise ValueError("there is a container engine's socket: whoever reaches it is root on the node")
    version = parts[-2] if parts[-1] == "variables" and len(parts) > 1 else parts[-1]
    if version.isdecimal():
        raise ValueError(f"give the folder that holds the version folders, not version {version} itself")
    return text.rstrip("/")


_TAKEN_HEADERS = {
    "connection",
    "content-length",
    "content-type",
    "host",
    "te",
    "transfer-encoding",
    "upgrade",
}
_TAKEN_HEADERS |= {"x-served-by", "x-tf-model", "x-request-id", "x-forwarded-for"}


def _free_header(name: str) -> str:
    if name in _TAKEN_HEADERS or name.startswith(("x-envoy-", "grpc-")):
        raise ValueError("this header has a meaning of its own; name another one, such as x-user-id")
    return name


def _with_a_possible_port(endpoint: str) -> str:
    port = re.search(r"^(?:ssh|tcp)://.*:(\d+)$", endpoint)
    if port and not 1 <= int(port[1]) <= 65535:
        raise ValueError(f"there is no port {port[1]}; accepted: 1 to 65535")
    return endpoint


SLOT_PART = re.compile(r"^\d{1,2}:[0-6]$")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

# What each pattern accepts, in words: an error shows these, not the expression.
PATTERN_WORDS: dict[str, str] = {SLOT_PART.pattern: "'<gpu>:<part>' of one that is cut up"}


def _text(pattern: str, words: str) -> StringConstraints:
    PATTERN_WORDS[pattern] = words
    return StringConstraints(pattern=pattern)


Slug = Annotated[
    str,
    _text(
        r"^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$",
        "lower-case letters, digits and '-', starting with a letter, at most 32",
    ),
]
ModelName = Annotated[
    str, _text(r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$", "letters, digits, '_', '.' and '-', at most 63")
]
Owner = Annotated[
    str,
    _text(
        r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$",
        "letters, digits, '.', '_' and '-' (a team's name, no address), at most 63",
    ),
]
# The server's own documentation limits labels to word characters (docs/serving_config.md there).
Label = Annotated[str, _text(r"^[A-Za-z0-9_]{1,63}$", "letters, digits and '_', at most 63")]
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
GpuId = Annotated[
    str,
    _text(
        rf"^GPU-{_UUID}$",
        "the UUID that `nvidia-smi -L` prints, such as GPU-6f9619ff-8b86-d011-b42d-00c04fc964ff",
    ),
]
MigId = Annotated[
    str,
    _text(
        rf"^(MIG-{_UUID}|MIG-GPU-{_UUID}/\d+/\d+)$",
        "the MIG UUID that `nvidia-smi -L` prints, such as MIG-6f9619ff-8b86-d011-b42d-00c04fc964ff",
    ),
]
CpuSet = Annotated[str, AfterValidator(_normal_cpus)]
ModelPath = Annotated[str, AfterValidator(_model_path)]
FolderPath = Annotated[str, _text(r"^(/|~/|\./)\S+$", "an absolute path, ~/… or ./… in this project")]
RawFile = Annotated[
    str, _text(r"^(\./)?[^/\s][^\s]*$", "a file of this project, such as ./files/models.config")
]
# Parts of an image's name, as the engine reads them (distribution/reference).
_HOST = r"[a-z0-9]+((\.|-+)[a-z0-9]+)*"
_NAME = r"[a-z0-9]+((\.|_{1,2}|-+)[a-z0-9]+)*"
ImageReference = Annotated[
    str,
    _text(
        rf"^({_HOST}(:[0-9]{{1,5}})?/)?{_NAME}(/{_NAME})*:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}}(@sha256:[0-9a-f]{{64}})?$",
        "repository:tag, or repository:tag@sha256:<64 hex digits>",
    ),
]
HostName = Annotated[
    str,
    _text(
        r"^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$",
        "a DNS name or an IPv4 address",
    ),
]
HeaderName = Annotated[
    str,
    _text(r"^[a-z][a-z0-9]*(-[a-z0-9]+){0,15}$", "a header's name in lower-case letters, digits and '-'"),
    AfterValidator(_free_header),
]
HeaderValue = Annotated[
    str, _text(r"^[!-~]([ -~]{0,254}[!-~])?$", "printable ASCII, at most 256, without blanks around it")
]
RestPath = Annotated[
    str,
    _text(
        r"^/v1/models/[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}([/:][A-Za-z0-9_/:]*)?$",
        "the beginning of a path, from /v1/models/<model> on",
    ),
]
ConfigKey = Annotated[str, _text(r"^[a-z][a-z0-9_]{0,62}$", "lower-case letters, digits and '_', at most 63")]
Base64Url = Annotated[str, _text(r"^[A-Za-z0-9_-]{1,2048}$", "base64url: letters, digits, '-' and '_'")]
ObjectName = Annotated[
    str,
    _text(
        r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        "a name in Kubernetes: lower-case letters, digits and '-', at most 63",
    ),
]
QualifiedName = Annotated[
    str,
    _text(
        r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$",
        "a key in Kubernetes, such as nvidia.com/gpu.product",
    ),
]
GpuResource = Annotated[
    str,
    _text(
        r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$",
        "a resource that nodes offer, such as nvidia.com/gpu or nvidia.com/mig-1g.10gb",
    ),
]
Driver = Annotated[
    str, _text(r"^\d{3}\.\d{1,3}(\.\d{1,3})?$", "a driver version in quotes, such as '535.129.03'")
]
Endpoint = Annotated[
    str,
    _text(
        r"^(default|unix:///\S+|(ssh://([A-Za-z0-9_][A-Za-z0-9._-]*@)?|tcp://)[A-Za-z0-9][A-Za-z0-9.-]*(:\d{1,5})?)$",
        "ssh://user@host[:port], tcp://host:port, unix:///path, or default (what `docker` itself reaches)",
    ),
    AfterValidator(_with_a_possible_port),
]
STACK_OF_OBJECTS = re.compile(r"[a-z]([a-z0-9-]{0,18}[a-z0-9])?")
"""Names of stacks that names of Kubernetes objects can begin with; a pool's name and a hash follow."""
MOST_MIB = 2**27
"""128 TiB: more than any machine has."""
Port = Annotated[int, Field(ge=1, le=65535)]
ModelVersion = Annotated[int, Field(ge=0, le=2**63 - 1)]
