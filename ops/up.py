"""`make up`, `make preview` and plain Pulumi commands on a stack."""

import os
import time
from collections.abc import Mapping, Sequence

from ops import nodes, paths, pods, policy, samples, setup, unwell
from ops.errors import UserError
from ops.hosts import Host
from ops.stack import Stack
from ops.state import team_backend, throw_away_backend

_FROM_NOTHING = (
    "PLAN FROM NOTHING: stack {stack} has no shared state backend here, so this shows what a first `up` "
    "would make, not what would change. No host is contacted."
)
_CLOCK_SLACK_S = 2.0
# These tell or choose the backend, so they need none.
_LOGIN = ("login", "logout", "whoami")


def up(stack: str, arguments: Sequence[str]) -> int:
    """Deploy a stack; the local one is asked for predictions afterwards."""
    code, used = apply(stack, arguments)
    if code == 0:
        print(_who_answers(used) if stack == setup.LOCAL_STACK else _what_is_there(used), flush=True)
    return code


def apply(stack: str, arguments: Sequence[str]) -> tuple[int, Stack]:
    """Deploy a stack with all that comes before: the exit code, and what was run."""
    if stack != setup.LOCAL_STACK:
        setup.check_stack_file(stack)
        team = setup.team_stack(stack, changes=True)
        options = [*policy.options(stack), *arguments]
        code = setup.preflight(stack, {})
        if code == 0:
            on_kubernetes = setup.is_on_kubernetes(stack)
            code = (
                _deploy_pods(team, options) if on_kubernetes else deploy(team, nodes.hosts_of(stack), options)
            )
        return code, team
    local = setup.local_stack()
    code = setup.preflight(stack, dict(local.env))
    if code == 0:
        hosts = nodes.hosts_of(stack, local.env["DOCKER_HOST"])
        code = deploy(local, hosts, ["--yes", "--skip-preview", *arguments])
    return code, local


def deploy(stack: Stack, hosts: Mapping[str, Host], arguments: Sequence[str]) -> int:
    """Run `pulumi up`, then name each container that is not well: 1 for one, also where Pulumi is content.

    Nothing is named where Pulumi failed before it made a container.
    """
    # A broken instance stops those that wait for it; other pools and nodes are not held up.
    began = time.monotonic()
    code = stack.explain("up", "--continue-on-error", "--suppress-outputs", *arguments)
    lasted_s = time.monotonic() - began
    if code != 0 and not unwell.anything_made(stack.name, hosts, within_s=lasted_s + _CLOCK_SLACK_S):
        return code  # what Pulumi did not come to is not why it failed
    said = unwell.report(stack.name, hosts, failed=code != 0)
    if said:
        print(f"\n{said}", flush=True)
    return code or (1 if said else 0)


def _deploy_pods(stack: Stack, arguments: Sequence[str]) -> int:
    """Run `pulumi up`, and say why pods are not well: the provider's error does not, and comes late."""
    with pods.watched(stack.name):
        code = stack.explain("up", "--continue-on-error", "--suppress-outputs", *arguments)
    if code != 0:
        pods.show(stack.name)
    return code


def _who_answers(stack: Stack) -> str:
    outputs = stack.outputs()
    answered = ["", samples.show(outputs), ""]
    urls = [f"REST     {outputs['rest_url']}", f"gRPC     {outputs['grpc_target']}", ""]
    return "\n".join([*answered, *urls, *next_steps(stack.name, stack.env["DOCKER_HOST"], outputs)])


def _what_is_there(stack: Stack) -> str:
    """Where clients ask, and where each pool is: the outputs in full are long."""
    everything = f"All outputs: make pulumi STACK={stack.name} ARGS='stack output'"
    try:
        outputs = stack.outputs()
        lines = [
            *(f"REST     {url}" for url in samples.texts(outputs, "rest_urls")),
            *(f"gRPC     {target}" for target in samples.texts(outputs, "grpc_targets")),
            *(f"pool     {line}" for line in samples.pools(outputs)),
        ]
    except UserError:  # `up` is done, whatever the outputs say
        lines = []
    return "\n".join(["", *lines, everything])


def next_steps(stack: str, engine: str, outputs: Mapping[str, object]) -> list[str]:
    """What to type after an `up` of the local stack."""
    example = samples.questions_of(outputs)[0]
    instance = samples.instances_of(outputs)[0]
    return [
        "Next:",
        f"  curl -d '{example.body.decode()}' {example.url}",
        f"  curl {samples.metrics_url(outputs)}",
        f"  docker --host {engine} logs {stack}.{instance.name}",
        f"  docker --host {engine} logs {stack}.{instance.node}-envoy",
        "  make pulumi ARGS='stack output'",
        "  make down",
    ]


def preview(stack: str, arguments: Sequence[str]) -> int:
    """Show what `up` would change. Without a shared backend of the team's, a plan from nothing."""
    setup.check_stack_file(stack)
    if stack == setup.LOCAL_STACK:
        return setup.local_cli().explain("preview", *arguments)
    if team_backend(stack, os.environ, paths.ROOT / "Pulumi.yaml") is not None:
        team = setup.team_stack(stack, changes=False)
        return team.explain("preview", *policy.options(stack), *arguments)
    return _preview_from_nothing(stack, arguments)


def _preview_from_nothing(stack: str, arguments: Sequence[str]) -> int:
    setup.ensure_tools(stack=stack)
    line = _FROM_NOTHING.format(stack=stack)
    print(line, flush=True)
    backend, folder = throw_away_backend()
    with folder:
        empty = setup.cli(stack, {}, backend=backend)
        empty.ensure_exists()
        code = empty.explain("preview", *policy.options(stack), *arguments)
    print(line, flush=True)
    return code


def pulumi(stack: str, arguments: Sequence[str]) -> int:
    """Run any Pulumi command on a stack, with its state and its engine; of a team, also `login`."""
    if not arguments:
        raise UserError(f"type what Pulumi is to do: make pulumi STACK={stack} ARGS='stack output'")
    logs_in = arguments[0] in _LOGIN
    if stack == setup.LOCAL_STACK:
        if logs_in:
            raise UserError(
                f"the state of stack {stack} is in this checkout, whoever is logged in. For a team's stack: "
                f"make pulumi STACK=<stack> ARGS='{' '.join(arguments)}'"
            )
        return setup.local_cli().run(*arguments)
    if logs_in:
        setup.require_stack_file(stack)
        setup.ensure_tools()
        return setup.cli(stack, {}, backend=None).run(*arguments)
    return setup.team_stack(stack, changes=True).run(*arguments)
