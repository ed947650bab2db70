"""The Kubernetes stack's resources, written out flat: as a program without components would have them."""

from collections.abc import Mapping
from importlib.metadata import version

from bench.flat import snake
from components.stack_file import load_settings
from components.targets import deploy
from tests.mock_engine import Engine, Registered, run_program

_PROVIDER = "pulumi:providers:kubernetes"
_HEAD = """import pulumi
import pulumi_kubernetes as kubernetes

made = {}


def options(depends_on, timeouts):
    return pulumi.ResourceOptions(
        provider=made["serving-kubernetes"],
        depends_on=[made[name] for name in depends_on],
        custom_timeouts=pulumi.CustomTimeouts(**timeouts) if timeouts else None,
    )


"""


def registered(config: Mapping[str, object], stack: str) -> Engine:
    """What our own program registers for a stack."""

    def program() -> Mapping[str, object]:
        settings = load_settings(config, f"Pulumi.{stack}.yaml")
        return {"done": deploy(settings, stack=stack, project_folder="/srv/project").contract_version}

    return run_program(program)


def kubernetes_program(config: Mapping[str, object], stack: str, *, typed: bool) -> str:
    """Python text with one literal call a resource: by the classes of `pulumi_kubernetes`, or without them.

    Without (`typed=False`) it is as our own program does it: the package is large, and its import slow.
    """
    engine = registered(config, stack)
    leaves = [each for each in engine.resources if not each.type.startswith("tf-serving:")]
    names = {each.urn: each.name for each in leaves}
    head = _HEAD if typed else _HEAD.replace("import pulumi_kubernetes as kubernetes\n", "")
    return head + "\n".join(_call(each, names, typed=typed) for each in leaves) + "\n"


def _call(each: Registered, names: Mapping[str, str], *, typed: bool) -> str:
    if each.type == _PROVIDER:
        return f"made[{each.name!r}] = {_provider(each, typed=typed)}"
    provider = each.provider.rpartition("::")[0]
    waited = sorted({names[urn] for urn in each.dependencies if urn in names and urn != provider})
    opts = f"options({waited!r}, {each.timeouts!r})"
    if not typed:
        made = f"pulumi.CustomResource({each.type!r}, {each.name!r}, {each.inputs!r}, {opts})"
        return f"made[{each.name!r}] = {made}"
    _, group, kind = each.type.split(":")
    group_name, _, of_version = group.partition("/")
    inputs = {key: value for key, value in each.inputs.items() if key not in ("apiVersion", "kind")}
    arguments = "".join(f"{snake(key)}={value!r}, " for key, value in inputs.items())
    of = f"kubernetes.{group_name.split('.')[0]}.{of_version}.{kind}"
    return f"made[{each.name!r}] = {of}({each.name!r}, {arguments}opts={opts})"


def _provider(each: Registered, *, typed: bool) -> str:
    if not typed:
        opts = f"pulumi.ResourceOptions(version={version('pulumi-kubernetes')!r})"
        return f"pulumi.ProviderResource('kubernetes', {each.name!r}, {each.inputs!r}, {opts})"
    arguments = "".join(f"{snake(key)}={_of_json(value)!r}, " for key, value in each.inputs.items())
    return f"kubernetes.Provider({each.name!r}, {arguments.rstrip(', ')})"


def _of_json(value: object) -> object:
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
