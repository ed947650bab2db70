"""Variables, labels, arguments and files of a container are in plain text in the state and on the machine."""

from collections.abc import Iterator, Mapping

from pack.encrypted import EncryptedText
from pack.reading import decoded
from pack.resource import Resource
from pack.rule import Finding, Params, Rule
from pack.secrets import HIDDEN, form, is_named_secret
from pack.stack import Stack
from pack.workload import Workload

NAME = "no-secrets-in-the-open"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
_FIX = {
    "docker": "keep it in a file of the machine, or upload a file from a Pulumi secret, and hand over the "
    "path; then change it: it has been seen",
    "kubernetes": "put it into a Secret and refer to that (valueFrom.secretKeyRef, or a volume); then "
    "change it: it has been seen",
}


def check(stack: Stack, _params: Params) -> Iterator[Finding]:
    """Every text that is stored in the open; what is unknown in preview is judged on `up`, before that."""
    for workload in stack.workloads:
        if not workload.is_exempt_from(NAME):
            for where, what in _found(workload):
                yield _finding(workload.resource, workload.name, where, what, workload.target)
    for resource in stack.of_type(CONFIG_MAP):
        data = resource.props.get("data")
        for where, what in _by_name(data if isinstance(data, dict) else {}, "data"):
            yield _finding(resource, resource.name, where, what, "kubernetes")
        binary = resource.props.get("binaryData")
        for name, text in binary.items() if isinstance(binary, dict) else ():
            if isinstance(text, str) and (found := form(decoded(text))):
                yield _finding(resource, resource.name, f"binaryData {name}", found, "kubernetes")


def _finding(resource: Resource, name: str, where: str, what: str, target: str) -> Finding:
    return Finding(resource=resource, what=f"{name}: {where}: {HIDDEN}: looks like {what}", fix=_FIX[target])


def _found(workload: Workload) -> Iterator[tuple[str, str]]:
    yield from _by_name(workload.env, "variable")
    yield from _by_name(workload.labels, "label")
    yield from _by_name({name: value or "" for name, value in workload.flags()}, "argument")
    loose = [word for word in workload.command if not word.startswith("-")]
    probes = (workload.probe, workload.startup_probe)
    loose += [word for probe in probes if probe for word in probe.command]
    yield from (("argument", what) for word in loose if (what := form(word)))
    for path, text in workload.files.items():
        # In a variable a secret is in the open for all who may inspect the container, in a file it is not.
        if not isinstance(text, EncryptedText) and (what := form(text)):
            yield f"file {path}", what


def _by_name(values: Mapping[str, object], kind: str) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if not isinstance(value, str):
            continue
        if what := form(value):
            yield f"{kind} {name}", what
        elif is_named_secret(name, value):
            yield f"{kind} {name}", "a secret, by its name"


RULES = (
    Rule(
        name=NAME,
        scope="resource",
        protects="No secret stands in a variable, label, argument or file: all who see the state read it",
        severity="critical",
        steps=(
            "Remove the secret, and hand over the path of a file: mounted read-only, or uploaded from a "
            "Pulumi secret, which the state keeps encrypted (Kubernetes: a Secret). Then make "
            "a new one: the old one is in the state, its history and on the machine."
        ),
        why=(
            "https://github.com/pulumi/pulumi/issues/17844",
            "https://github.com/pulumi/pulumi/issues/18866",
            "https://github.com/pulumi/pulumi-kubernetes/issues/1118",
        ),
        exempt=(
            "What is no model server, by the label `tf-serving.exempt: no-secrets-in-the-open`. An upload by "
            "`source` is not judged: no policy is shown the file."
        ),
        levels={"local": "advisory", "staging": "mandatory", "prod": "mandatory"},
        check=check,
    ),
)
