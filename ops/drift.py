"""`make drift`: whether what runs on a stack's nodes still is what its state says; it changes nothing.

Pulumi's own look (`preview --refresh --expect-no-changes`) goes through the provider, which never reads a
container's environment, labels, volumes and uploaded files back. So the containers are inspected too.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ops import docker_host, inspection, nodes, running_envoy, setup
from ops.arguments import Parser
from ops.errors import UserError
from ops.hosts import Host
from ops.inspection import Container, Difference, differences
from ops.labelled import labelled
from ops.samples import table
from ops.stack import Stack
from toolchain.progress import note

NO_DRIFT = "No drift"
_MOST_CHARACTERS = 40_000
_CONTAINER = "docker:index/container:Container"


@dataclass(frozen=True)
class Look:
    """What was found: whether Pulumi would change something, its words, what differs in the containers."""

    changes: bool
    said: str
    found: Sequence[Difference]
    inspected: int
    secret: Sequence[tuple[str, str]] = ()
    """Containers, and files of theirs that nobody compared: they are secret."""

    @property
    def clean(self) -> bool:
        """Whether both found nothing."""
        return not self.changes and not self.found


def drift(stack: str, arguments: Sequence[str]) -> int:
    """Print a report, and write it to `--out FILE`: 0 for no drift, 1 for some or where it cannot be told."""
    out = _out(arguments)
    setup.check_stack_file(stack)
    if setup.is_on_kubernetes(stack) and (folder := nodes.rendered_to(stack)):
        raise UserError(
            f"stack {stack} is written to {folder} and reaches no cluster: what applies it there tells its "
            f"drift, or `kubectl diff --recursive --filename {folder}`"
        )
    if stack == setup.LOCAL_STACK:
        chosen = docker_host.recorded()
        if chosen is None:
            raise UserError("the local stack is not deployed: `make up` first")
        pulumi, hosts = setup.local_cli(), nodes.hosts_of(stack, chosen.docker_host)
    else:
        pulumi, hosts = setup.team_stack(stack, changes=False), nodes.hosts_of(stack)
    looked = look(pulumi, hosts)
    text = report(stack, looked)
    print(text)
    if out:
        out.write_text(text, encoding="utf-8")
    return 0 if looked.clean else 1


def _out(arguments: Sequence[str]) -> Path | None:
    parser = Parser(prog="make drift ARGS=…", add_help=False)
    parser.add_argument("--out", type=Path, metavar="FILE")
    out: Path | None = parser.parse_args(list(arguments)).out
    return out


def look(stack: Stack, hosts: Mapping[str, Host]) -> Look:
    """Ask Pulumi, then the engines. Raises UserError where one does not answer: that is not called drift."""
    # Where one file of a container is secret, the state has them all as one secret, and most of them are not.
    exported = json.loads(stack.query("stack", "export", "--show-secrets"))
    resources = (exported.get("deployment") or {}).get("resources") or []
    declared = [inspection.declared(one) for one in resources if one.get("type") == _CONTAINER]
    found = [*_of_declared(declared, hosts), *_undeclared(stack.name, declared, hosts)]
    note(f"{len(declared)} containers inspected; now Pulumi's own look (`preview --refresh`) ...")
    changes, said = stack.changes("--refresh")
    secret = [(one.name, file) for one in declared for file in one.secret_files]
    return Look(changes, said, found, len(declared), secret)


def _of_declared(declared: Sequence[Container], hosts: Mapping[str, Host]) -> list[Difference]:
    found = []
    for one in declared:
        if one.node not in hosts:
            found.append(Difference(one, "node", one.node, "not in the stack file"))
        else:
            found += differences(one, hosts[one.node])
            found += running_envoy.of_publisher(one, hosts[one.node])
    return found


def _undeclared(stack: str, declared: Sequence[Container], hosts: Mapping[str, Host]) -> list[Difference]:
    """Containers with the stack's labels that its state does not know."""
    names = {one.name for one in declared}
    return [
        Difference(Container(one.name, one.node, one.id), "container", "unknown", f"is there ({one.state})")
        for one in labelled(stack, hosts)
        if one.kind == "container" and one.name not in names
    ]


def report(stack: str, looked: Look) -> str:
    """Markdown; its first line says whether there is drift."""
    if looked.clean:
        containers = (
            f", and {looked.inspected} containers have the environment, labels, mounts and files of the state"
        )
        return (
            f"{NO_DRIFT} in stack {stack}: nothing to change by `preview --refresh`"
            f"{containers if looked.inspected else ''}.\n{_not_compared(looked)}"
        )
    lines = [f"Drift in stack {stack}.", ""]
    if looked.found:
        rows = [(d.container.name, d.container.node, d.what, d.state, d.found) for d in looked.found]
        lines += ["In the containers themselves:", "", "```"]
        lines += [*table(("container", "node", "what", "in the state", "on the node"), rows), "```", ""]
    elif looked.inspected:
        lines += [f"{looked.inspected} containers are as the state has them.", ""]
    if not looked.changes:
        lines += ["Pulumi itself (`preview --refresh`) finds nothing to change.", ""]
    else:
        said = looked.said.strip().replace("```", "'''")[-_MOST_CHARACTERS:]
        lines += ["Pulumi itself (`preview --refresh --expect-no-changes`):", "", "```", said, "```", ""]
    lines += [
        f"`make heal STACK={stack}`, then `make up STACK={stack}`, puts it right. What was meant to stay",
        "goes into the stack file first.",
        "",
    ]
    return "\n".join(lines) + _not_compared(looked)


def _not_compared(looked: Look) -> str:
    files = [f"{container}:{file}" for container, file in looked.secret]
    return f"\nNot compared, as they are secret: {', '.join(files)}.\n" if files else ""
