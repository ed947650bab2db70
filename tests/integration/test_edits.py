"""Every input of a stack, edited on a real engine: what Pulumi does, and what the containers then have."""

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from components.settings import Settings
from components.stack_file import accepted_keys
from images.samples import write_sample_models
from tests.envoy.harness import free_ports, wait_for
from tests.integration import edits, predict
from tests.integration.containers import Container
from tests.integration.docker_cli import DockerCli
from tests.integration.edit import LANES, REMOVED, Edit, Ground, resource_of
from tests.integration.small_stack import free_subnets, pools_of_one_gpu, small_stack
from tests.pulumi_project import Project, Run
from tests.stacks import Config, changed, without

STACK = "edits"
_DONE = re.compile(
    r"^ *[-+~]+ +docker:\S+ (\S+) (created|updated|replaced|deleted)(?! original| replacement)", re.MULTILINE
)
_NAMES = [
    (edit.name, number)
    for number, edits_of_round in enumerate(
        edits.rounds(Ground(STACK, Path("/"), "", IPv4Network("10.0.0.0/24"), (1, 2, 3)))
    )
    for edit in edits_of_round
]


@dataclass(frozen=True)
class Round:
    """One `up` with several edits: what was so before and after it, and what Pulumi said."""

    up: Run
    again: Run
    ids_before: Mapping[str, str]
    ids_after: Mapping[str, str]
    shown_before: Mapping[tuple[str, str], bool]
    shown_after: Mapping[tuple[str, str], bool]

    def did(self) -> dict[str, str]:
        """What Pulumi did to which resource."""
        return dict(_DONE.findall(self.up.output))


class Drill:
    """A deployed stack, and the rounds of edits made to it so far."""

    def __init__(self, project: Project, engine: DockerCli, config: Config, ground: Ground) -> None:
        self.project = project
        self.engine = engine
        self.config = config
        self.rounds = edits.rounds(ground)
        self._made: dict[int, Round] = {}

    def round(self, number: int) -> Round:
        """The outcome of a round, which is made when it is first asked for."""
        if number not in self._made:
            self._made[number] = self._make(self.rounds[number])
        return self._made[number]

    def _make(self, together: list[Edit]) -> Round:
        for edit in together:
            for place, value in edit.values.items():
                if value is REMOVED:
                    self.config = without(self.config, place)
                else:
                    self.config = changed(self.config, place, copy.deepcopy(value))
        ids_before, shown_before = self._ids(), self._shown(together)
        self.project.write_stack(STACK, self.config)
        up = self.project.up(STACK)
        return Round(
            up=up,
            again=self.project.up(STACK, "--refresh", "--expect-no-changes"),
            ids_before=ids_before,
            ids_after=self._ids(),
            shown_before=shown_before,
            shown_after=self._shown(together),
        )

    def _ids(self) -> dict[str, str]:
        return {name.removeprefix(f"{STACK}."): identity for name, identity in self.engine.ids().items()}

    def _shown(self, together: list[Edit]) -> dict[tuple[str, str], bool]:
        present = self._ids()
        return {
            (edit.name, name): name in present and shows(Container(self.engine, f"{STACK}.{name}"))
            for edit in together
            for name, shows in edit.shows.items()
        }


@pytest.fixture(scope="module")
def drill(project: Project, engine: DockerCli, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drill]:
    models = tmp_path_factory.mktemp("models")
    for folder in (models, models / "elsewhere"):
        write_sample_models(folder, versions=(1, 2))
    for own, other in (
        ("tf-serving-simulator:2.14.1-gpu", edits.SERVER_IMAGE),
        ("tf-serving-envoy:1.40.0", edits.ENVOY_IMAGE),
    ):
        engine.run("tag", own, other)
    (project.folder / "batching.config").write_text(
        "max_batch_size { value: 32 } max_enqueued_batches { value: 77 }"
    )
    (project.folder / "models.config").write_text(
        f'model_config_list {{ config {{ name: "three" base_path: "{models}/half_plus_two" '
        'model_platform: "tensorflow" model_version_policy { latest { num_versions: 3 } } } }'
    )
    subnet, other_subnet = free_subnets(2)
    config = pools_of_one_gpu(small_stack(models, subnet=subnet), LANES)
    ground = Ground(STACK, models, engine.docker_host, other_subnet, free_ports(3))
    project.write_stack(STACK, config)
    try:
        first = project.up(STACK)
        assert first.code == 0, first.output
        yield Drill(project, engine, config, ground)
    finally:
        project.destroy(STACK)


@pytest.mark.integration
@pytest.mark.parametrize(("name", "number"), _NAMES, ids=[name for name, _ in _NAMES])
def test_an_edit_does_what_the_table_says_and_the_container_has_the_new_value(
    drill: Drill, name: str, number: int
) -> None:
    together = drill.rounds[number]
    [edit] = (edit for edit in together if edit.name == name)
    done = drill.round(number)
    assert done.up.code == 0, done.up.output
    assert done.did() == {resource: how for each in together for resource, how in each.does.items()}
    replaced = {name for name, identity in done.ids_after.items() if done.ids_before.get(name) != identity}
    for container in done.ids_before.keys() | done.ids_after.keys():
        resource = resource_of(container)
        assert (container in replaced) == (done.did().get(resource) in ("replaced", "created")), container
    for container in edit.shows:
        shown = done.shown_before[name, container], done.shown_after[name, container]
        assert shown == (False, True), container
    assert done.again.code == 0, done.again.output


@pytest.mark.integration
def test_after_all_edits_every_pool_answers(drill: Drill) -> None:
    drill.round(len(drill.rounds) - 1)
    front_end, address = drill.config["front_end"], drill.config["nodes"][0]["bind"]

    def answers(model: str) -> bool:
        return predict.rest(front_end["rest_port"], model=model, host=address).prediction == 2.5

    for model in ("renamed", "two", "second", "second_original", "three"):
        wait_for(f"{model} answers", lambda model=model: answers(model))  # type: ignore[misc]


# Settings that no edit above reaches, and why.
_NOT_EDITED = {
    "target": "the other one is in tests/cluster",
    "nodes[].name": "renames every container: in test_two_stacks",
    "nodes[].renamed_from": "likewise",
    "nodes[].docker.ssh_options": "only for ssh://",
    "nodes[].docker.cert_path": "only for tcp://",
    "nodes[].hardware": "another way to write gpus",
    "nodes[].gpu_uuids": "likewise",
    "nodes[].share_cpus": "only a rule, and needed here: every GPU has CPU 0",
    "nodes[].gpus[].index": "another GPU: another slot",
    "nodes[].gpus[].mig": "a part is a slot: like the slots of whole GPUs",
    "pools[].sharing": "renames its containers",
    "pools[].single": "a label, as all_gpus is",
    "pools[].unbatched": "likewise",
    "pools[].new_versions": "in test_release.py, which ends with it",
    "pools[].release": "likewise",
    "front_end.tls": "with a real Envoy in tests/envoy/test_edge.py",
    "front_end.auth": "likewise",
    "front_end.rate_limit": "likewise",
    "front_end.tracing": "likewise",
    "front_end.request_ids": "likewise",
    "front_end.access_log": "likewise",
    "pools[].traffic": "routes, as those of versions; with a real Envoy in tests/envoy/test_versions.py",
    "pools[].server.xla_gpu_compilation_enabled": "a flag that the simulated version lacks",
    "pools[].server.mixed_precision": "likewise",
    "pools[].server.enable_grpc_healthcheck_service": "likewise",
    "pools[].server.enable_serialization_as_tensor_content": "likewise",
    "pools[].models[].optimized.tensorrt": "only a rule",
    "pools[].models[].optimized.keep_original": "what it stands at by default is edited",
    "pools[].slots[].node": "another node: another slot",
}


def test_every_setting_is_edited_or_says_why_not() -> None:
    models = accepted_keys(Settings)
    settings = {f"{model}.{key}".lstrip(".") for model, keys in models.items() for key in keys}
    leaves = settings - {model.removesuffix("[]") for model in models}
    ground = Ground(STACK, Path("/"), "", IPv4Network("10.0.0.0/24"), (1, 2, 3))
    places = [
        re.sub(r"\[\d+\]", "[]", f"{place}.{key}")
        for together in edits.rounds(ground)
        for edit in together
        for place, value in edit.values.items()
        for key in _keys(value)
    ]
    missing = {
        leaf
        for leaf in leaves
        if not any(place.startswith(f"{leaf}.") for place in places)
        and not any(leaf == left or leaf.startswith((f"{left}.", f"{left}[")) for left in _NOT_EDITED)
    }
    assert missing == set()


def _keys(value: object, below: str = "") -> list[str]:
    if not isinstance(value, dict):
        return [below]
    return [key for name, child in value.items() for key in _keys(child, f"{below}{name}.")]
