"""`make release`: moves a pool to another version of a model, one GPU after the other.

What is done is in the stack file (`pools[].release`), and every step is an `up` of what the file says. So
whatever ends this program, the next one finds out where it was.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ops import docker_host, nodes, policy, release_file, setup, up
from ops.arguments import Parser
from ops.errors import UserError
from ops.hosts import Host
from ops.labels import filters
from ops.release_answers import Answers, answers
from ops.release_file import Pool, Release
from ops.samples import table
from toolchain.progress import note

_Choice = Literal["on", "abort", "stay"]
_PAUSE_S = 60
_LOOK_S = 5.0
_MOST_CHARACTERS = 4000


@dataclass(frozen=True, kw_only=True)
class _Options:
    pool: str
    to: int | None
    model: str | None
    step: int
    pause: int | None
    yes: bool
    abort: bool
    status: bool
    max_failed: float | None

    @property
    def asks_nobody(self) -> bool:
        """Whether it goes on by itself after each pause."""
        return self.yes or self.pause is not None


def release(stack: str, arguments: Sequence[str]) -> int:
    """Begin a release or go on with one, move back (`--abort`), or say how far it is (`--status`)."""
    options = _options(arguments)
    setup.check_stack_file(stack)
    pool = _pool(stack, options.pool)
    if options.status:
        return _status(stack, pool)
    _must_be_asked_for(options)
    if options.abort:
        return _abort(stack, pool, options)
    if pool.release is None:
        _begin(stack, pool, options)
    elif options.to not in (None, pool.release.version):
        raise UserError(
            f"{_under_way(pool, pool.release)}. Before another one to {options.to}, finish it or move back:\n"
            f"  {_command(stack, pool, f'--to {pool.release.version}')}\n  {_command(stack, pool, '--abort')}"
        )
    return _go_on(stack, options)


def _options(arguments: Sequence[str]) -> _Options:
    parser = Parser(prog="make release ARGS=…", add_help=False)
    parser.add_argument("pool")
    parser.add_argument("--to", type=int, metavar="VERSION")
    parser.add_argument("--model")
    parser.add_argument("--step", type=int, default=1, metavar="GPUS")
    parser.add_argument("--pause", type=int, metavar="SECONDS")
    parser.add_argument("--max-failed", type=float, metavar="PERCENT")
    for flag in ("--yes", "--abort", "--status"):
        parser.add_argument(flag, action="store_true")
    options = _Options(**vars(parser.parse_args(list(arguments))))
    if options.step < 1:
        parser.error(f"--step {options.step}: at least 1 GPU a step")
    if options.max_failed is not None and not options.asks_nobody:
        parser.error("--max-failed: is looked at in the pauses between steps: add --pause SECONDS")
    return options


def _must_be_asked_for(options: _Options) -> None:
    if not options.yes and not sys.stdin.isatty():
        raise UserError(
            "there is no terminal to ask at: add --yes to ARGS, with --pause SECONDS between the steps"
        )


def _pool(stack: str, name: str) -> Pool:
    target, pools = release_file.read(stack)
    if target != "docker":
        raise UserError(
            f"stack {stack} is on Kubernetes, where the cluster chooses GPUs: a pool of its own gets the "
            "new version and a growing share of the requests (traffic.canary, docs/traffic.md); or change "
            "`versions` and labels, and run `make up`: pods take both up without a restart"
        )
    if name not in pools:
        raise UserError(f"{name}: no such pool in stack {stack}; there are {', '.join(pools)}")
    return pools[name]


def _begin(stack: str, pool: Pool, options: _Options) -> None:
    """Refuse what cannot be done; then write it down, with nothing moved."""
    if options.to is None:
        raise UserError(f"no release of pool {pool.name} is under way; begin one: --to VERSION")
    names = [model.name for model in pool.models]
    if options.model is None and len(names) > 1:
        raise UserError(f"pool {pool.name} has several models, say which: --model {'|'.join(names)}")
    name = options.model or names[0]
    if name not in names:
        raise UserError(f"--model {name}: no model of pool {pool.name}; accepted: {', '.join(names)}")
    model = pool.model(name)
    if model.versions is None or len(model.versions) != 1:
        raise UserError(
            f"{name} of pool {pool.name} must have one version before it gets another: set "
            "versions: {specific: [<version>]} to the one that is served, and run `make up`. "
            "(With latest or all, servers load a new version by themselves, beside the old one.)"
        )
    if model.versions == (options.to,):
        raise UserError(f"pool {pool.name} serves version {options.to} of {name} already")
    _must_be_as_written(stack, pool, options.to, model.folders)
    release_file.begin(stack, pool, Release(model=name, version=options.to, moved=0))
    note(f"Release of {name} in pool {pool.name}: {model.versions[0]} to {options.to}; no GPU is moved yet")


def _must_be_as_written(stack: str, pool: Pool, version: int, folders: Sequence[str]) -> None:
    """Raise UserError where other changes would ride along, or where a node lacks the version."""
    if stack == setup.LOCAL_STACK:
        pulumi, hosts, options = setup.local_stack(), _hosts(stack), list[str]()
    else:
        pulumi, hosts = setup.team_stack(stack, changes=True), _hosts(stack)
        options = policy.options(stack)
    lacking = [
        f"node {node}: {folder} has no version {version}"
        for node in dict.fromkeys(node for _, node in pool.instances)
        for folder in folders
        if version not in _versions_in(hosts[node], folder, version)
    ]
    if lacking:
        raise UserError("\n".join([*lacking, "Nothing was changed."]))
    note("Is there anything else to change? (`preview --expect-no-changes`)")
    changes, said = pulumi.changes(*options)
    if changes:
        raise UserError(
            f"stack {stack} is not what its file says, and other changes must not ride along: "
            f"`make up` first. Nothing was changed.\n{said[-_MOST_CHARACTERS:]}"
        )


def _versions_in(host: Host, folder: str, otherwise: int) -> list[int]:
    """Version folders on a node; where nobody can look there, what was asked for: the first step looks."""
    listed = host.run(["ls", "-1", folder])
    if listed.code != 0:
        return [otherwise]
    return [int(name) for name in listed.stdout.split() if name.isdecimal()]


def _go_on(stack: str, options: _Options) -> int:
    """Step by step until all are moved, somebody says otherwise, or something fails."""
    while True:
        pool, under_way = _under_way_in(stack, options.pool)
        count = len(pool.instances)
        which = (
            "the front end learns where each version is" if under_way.moved == 0 else _moved(pool, under_way)
        )
        note(f"{under_way.moved} of {count}: {which}")
        if code := _up(stack, options):
            _print_ways(
                stack, pool, under_way, "This step failed; instances that were not reached are as before."
            )
            return code
        if under_way.moved == count:
            break
        if under_way.moved > 0:
            choice = _choose(stack, pool, under_way, options)
            if choice == "abort":
                return _abort(stack, pool, options) or (1 if options.asks_nobody else 0)
            if choice == "stay":
                _print_ways(stack, pool, under_way, "It stays like this.")
                return 0
        release_file.moved(stack, pool, min(under_way.moved + options.step, count))
    release_file.finish(stack, pool, under_way)
    note("All are moved; the release is taken out of the stack file, no server is touched")
    if code := _up(stack, options):
        print(f"The release is done, but not this last `up`: `make up STACK={stack}` again.", file=sys.stderr)
        return code
    print(
        f"\nPool {pool.name} serves version {under_way.version} of {under_way.model}, and the stack file "
        "says so: commit it."
    )
    return 0


def _abort(stack: str, pool: Pool, options: _Options) -> int:
    """Move all back, then take the release out."""
    pool, under_way = _under_way_in(stack, pool.name)
    [before] = pool.model(under_way.model).versions or (0,)
    note(f"Moving {under_way.moved} instances back to version {before} of {under_way.model}")
    release_file.moved(stack, pool, 0)
    if code := _up(stack, options):
        _print_ways(
            stack, pool, under_way, "Moving back failed; instances that were not reached are as before."
        )
        return code
    release_file.drop(stack, pool)
    if code := _up(stack, options):
        print(f"All are back, but not this last `up`: `make up STACK={stack}` again.", file=sys.stderr)
        return code
    print(f"\nPool {pool.name} serves version {before} of {under_way.model}, as before the release.")
    return 0


def _under_way_in(stack: str, name: str) -> tuple[Pool, Release]:
    pool = _pool(stack, name)
    if pool.release is None:
        raise UserError(f"no release of pool {pool.name} is under way in Pulumi.{stack}.yaml")
    return pool, pool.release


def _up(stack: str, options: _Options) -> int:
    asked = [] if stack == setup.LOCAL_STACK or not options.yes else ["--yes"]
    return up.apply(stack, asked)[0]


def _choose(stack: str, pool: Pool, under_way: Release, options: _Options) -> _Choice:
    """What the person says between two steps; without one, on after the pause."""
    try:
        if options.asks_nobody:
            return _watch(stack, pool, under_way, options)
        left = [name for name, _ in pool.instances[under_way.moved :][: options.step]]
        print(f"\n{_moved(pool, under_way)} serve version {under_way.version} now; next: {', '.join(left)}.")
        said = input("Go on [g], abort and move back [a], or stay like this [s]? ").strip().lower()
    except EOFError:
        return "stay"
    except KeyboardInterrupt:
        _print_ways(stack, pool, under_way, "\nIt stays like this.")
        raise
    if said in ("g", "go", "go on", "y", "yes"):
        return "on"
    return "abort" if said in ("a", "abort") else "stay"


def _watch(stack: str, pool: Pool, under_way: Release, options: _Options) -> _Choice:
    """Wait for the pause to end; abort where too many answers of the new version are errors.

    So do servers that cannot say at the pause's end how many were: nobody knows how the new version does.
    """
    pause = _PAUSE_S if options.pause is None else options.pause
    note(
        f"{_moved(pool, under_way)} serve version {under_way.version}; next step in {pause} s (Ctrl-C: stay)"
    )
    hosts, moved = _hosts(stack), pool.instances[: under_way.moved]
    ends = time.monotonic() + pause
    while True:
        left = ends - time.monotonic()
        if options.max_failed is not None:
            said = {name: answers(hosts[node], f"{stack}.{name}", under_way.model) for name, node in moved}
            given = sum((one for one in said.values() if one is not None), Answers())
            if given.failed_percent > options.max_failed:
                note(f"{given}: more than {options.max_failed:g} %, so all are moved back")
                return "abort"
            silent = [name for name, one in said.items() if one is None]
            if silent and left <= 0:
                note(f"{', '.join(silent)} cannot be asked how many answers failed, so all are moved back")
                return "abort"
        if left <= 0:
            return "on"
        time.sleep(min(left, _LOOK_S))


def _hosts(stack: str) -> dict[str, Host]:
    if stack != setup.LOCAL_STACK:
        return nodes.hosts_of(stack)
    chosen = docker_host.recorded()
    return nodes.hosts_of(stack, chosen.docker_host if chosen else None)


def _status(stack: str, pool: Pool) -> int:
    if pool.release is None:
        print(f"Pulumi.{stack}.yaml: no release of pool {pool.name} is under way.")
    else:
        print(f"Pulumi.{stack}.yaml: {_under_way(pool, pool.release)}.")
    hosts = _hosts(stack)
    rows = [
        (name, node, _wanted(pool, position), _runs(stack, hosts[node], node, name))
        for position, (name, node) in enumerate(pool.instances)
    ]
    print("\n".join(table(("instance", "node", "the file says", "runs"), rows)))
    if pool.release is not None:
        _print_ways(stack, pool, pool.release, "")
    return 0


def _wanted(pool: Pool, position: int) -> str:
    release = pool.release
    said = {model.name: model.versions for model in pool.models}
    if release is not None and position < release.moved:
        said[release.model] = (release.version,)
    return ", ".join(f"{name}={'+'.join(map(str, versions or ('…',)))}" for name, versions in said.items())


def _runs(stack: str, host: Host, node: str, name: str) -> str:
    """What a container's labels say of its versions."""
    form = '{{.Label "tf-serving.versions"}}\t{{.State}}'
    only = f"label=tf-serving.instance={name}"
    shown = host.docker("ps", "--all", *filters(stack, node), "--filter", only, "--format", form)
    if shown.code != 0:
        return f"? ({shown.said})"
    versions, _, state = shown.stdout.strip("\n").partition("\t")
    return f"{versions or 'as its list of models says'} ({state})" if state else "no container"


def _under_way(pool: Pool, release: Release) -> str:
    return (
        f"a release of {release.model} in pool {pool.name} to version {release.version} is under way, "
        f"{release.moved} of {len(pool.instances)} instances moved"
    )


def _moved(pool: Pool, release: Release) -> str:
    return ", ".join(name for name, _ in pool.instances[: release.moved])


def _print_ways(stack: str, pool: Pool, release: Release, head: str) -> None:
    ways = {
        "go on": _command(stack, pool, f"--to {release.version}"),
        "move back": _command(stack, pool, "--abort"),
        "look": _command(stack, pool, "--status"),
    }
    print(
        "\n".join([*([head] if head else []), *(f"  to {what}: {command}" for what, command in ways.items())])
    )


def _command(stack: str, pool: Pool, arguments: str) -> str:
    return f'make release STACK={stack} ARGS="{pool.name} {arguments}"'
