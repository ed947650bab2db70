"""Envoy's files: each resource once, what names what, and versions that say whether anything changed."""

import re
from dataclasses import replace

import pytest

from components.envoy_files import bootstrap_file, envoy_files
from components.plan import FrontEndPlan
from tests.envoy.pools import TWO_POOLS, front_end
from tests.envoy.reading import SHAPES, bootstrap, clusters, files, manager, values

every_shape = pytest.mark.parametrize("plan", SHAPES.values(), ids=SHAPES)


def versions(plan: FrontEndPlan) -> dict[str, str]:
    return {name: file["version_info"] for name, file in files(plan).items()}


@every_shape
def test_files_come_in_the_order_in_which_envoy_can_take_them(plan: FrontEndPlan) -> None:
    kinds = [name[:3] for name in envoy_files(plan)]
    assert kinds == sorted(kinds, key=["eds", "cds", "rds", "lds"].index)


@every_shape
def test_files_of_routes_and_endpoints_hold_one_resource_and_no_file_holds_none(plan: FrontEndPlan) -> None:
    for name, file in files(plan).items():
        assert file["resources"], name
        assert len(file["resources"]) == 1 or name in ("cds.yaml", "lds.yaml")


@every_shape
def test_every_file_that_is_named_is_there_and_every_one_but_the_first_two_is_named(
    plan: FrontEndPlan,
) -> None:
    everything = [bootstrap(plan), files(plan)]
    sources = [value for key, value in values(everything) if key == "path_config_source"]
    named = [source["path"].removeprefix("/config/") for source in sources]
    assert sorted(named) == sorted(files(plan))
    assert {source["watched_directory"]["path"] for source in sources} == {"/config"}


@every_shape
def test_routes_are_checked_against_clusters(plan: FrontEndPlan) -> None:
    for name in ("rest", "grpc", "metrics"):
        [routing] = files(plan)[f"rds-{name}.yaml"]["resources"]
        assert routing["validate_clusters"] is True
        assert manager(plan, name)["rds"]["route_config_name"] == routing["name"] == name


@every_shape
def test_pools_have_their_endpoints_from_a_file_and_keep_none_elsewhere(plan: FrontEndPlan) -> None:
    for cluster in files(plan)["cds.yaml"]["resources"]:
        pool = cluster["name"].startswith(("rest-", "grpc-"))
        assert (cluster["type"] == "EDS") == pool
        assert ("load_assignment" in cluster) != pool
        assert f"eds-{cluster['name']}.yaml" in files(plan) or not pool


# What the script that publishes them counts on.
@every_shape
def test_a_file_begins_with_its_version_and_a_cluster_with_its_name(plan: FrontEndPlan) -> None:
    for text in envoy_files(plan).values():
        assert re.match(r'version_info: "[0-9a-f]{12}"\nresources:\n  - "@type"', text)
    names = re.findall(r'^  - "@type": .*\n    name: "(.*)"$', envoy_files(plan)["cds.yaml"], re.MULTILINE)
    assert names == list(clusters(plan))


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ({}, set()),
        ({"max_concurrent": 77}, {"cds.yaml"}),
        ({"max_request_mib": 7}, {"rds-rest.yaml", "rds-grpc.yaml", "lds.yaml"}),
        ({"rest_port": 7000}, set()),
        ({"rate_limit": {"per_second": 5}}, {"lds.yaml"}),
        ({"memory_mib": 2000}, set()),
    ],
)
def test_the_version_of_a_file_changes_with_what_is_in_it(
    settings: dict[str, object], changed: set[str]
) -> None:
    before, after = versions(front_end(TWO_POOLS)), versions(front_end(TWO_POOLS, settings=settings))
    assert {name for name, version in after.items() if version != before[name]} == changed


def test_an_instance_that_leaves_changes_its_pools_endpoints_and_no_listener() -> None:
    plan = front_end()
    [pool] = plan.pools
    smaller = replace(plan, pools=(replace(pool, endpoints=pool.endpoints[1:]),))
    before, after = versions(plan), versions(smaller)
    changed = {name for name, version in after.items() if version != before[name]}
    # A retry budget goes by the number of instances; the page of metrics of the one that left is gone.
    assert changed == {"eds-rest-main.yaml", "eds-grpc-main.yaml", "cds.yaml", "rds-metrics.yaml"}


def test_a_bootstrap_has_another_name_only_when_it_has_another_text() -> None:
    name, _ = bootstrap_file(front_end(TWO_POOLS))
    assert re.fullmatch(r"bootstrap-[0-9a-f]{12}\.yaml", name)
    assert bootstrap_file(front_end(settings={"max_concurrent": 77}))[0] == name
    assert bootstrap_file(front_end(settings={"memory_mib": 2000}))[0] != name


@every_shape
def test_the_status_page_shows_nothing_but_statistics_and_changes_nothing(plan: FrontEndPlan) -> None:
    [status] = bootstrap(plan)["static_resources"]["listeners"]
    assert status["address"]["socket_address"]["port_value"] == 9903
    routes = [value for key, value in values(status) if key == "routes"]
    [pages] = routes
    targets = {page["match"]["path"]: page["route"]["prefix_rewrite"].partition("?")[0] for page in pages}
    assert targets == {"/taken": "/stats", "/hosts": "/clusters"}
    for page in pages:
        for name, value in ((":method", "GET"), (":path", page["match"]["path"])):
            assert {"name": name, "string_match": {"exact": value}} in page["match"]["headers"]
