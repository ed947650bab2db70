"""safe-rollout: one at a time on Docker, strategies and autoscalers on Kubernetes, and one that stays."""

from dataclasses import replace

import pytest

from tests.policies.good import UNKNOWN, Declared, deployment, front_end, publisher, server
from tests.policies.judge import messages, violations

RULE = "safe-rollout"
AUTOSCALER = "kubernetes:autoscaling/v2:HorizontalPodAutoscaler"
ROLLING = "spec.strategy.rollingUpdate"


def judged(*declared: Declared, environment: str = "prod", **config: object) -> str:
    return "\n".join(messages(RULE, *declared, environment=environment, **config))


def chain(count: int) -> list[Declared]:
    first, *others = [server(gpu) for gpu in range(count)]
    return [first, *(other.after(f"gpu{position}") for position, other in enumerate(others))]


def scaler(least: float = 2, most: float = 4, name: str = "main") -> Declared:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    spec = {"scaleTargetRef": target, "minReplicas": least, "maxReplicas": most}
    return Declared(
        type=AUTOSCALER, name="scaler", host=None, props={"metadata": {"name": "scaler"}, "spec": spec}
    )


def test_a_chain_and_a_rolling_update_are_accepted() -> None:
    assert violations(RULE, *chain(4), front_end(), publisher(), deployment()) == []


@pytest.mark.parametrize("name", ["gpu1", "envoy"])
def test_a_container_makes_room_before_its_successor_is_made(name: str) -> None:
    there = [*chain(2), front_end()]
    bad = [replace(one, delete_before_replace=one.name != name) for one in there]
    [found] = violations(RULE, *bad)
    assert found.resource == name
    assert f"{name}: deleteBeforeReplace: unset: its successor would be made while" in found.message
    assert "Fix: set the resource option delete_before_replace=True" in found.message


def test_what_ends_by_itself_needs_no_room() -> None:
    assert judged(*chain(2), replace(publisher(), delete_before_replace=False)) == ""


def test_servers_that_do_not_wait_for_each_other_are_refused() -> None:
    [found] = violations(RULE, server(0), server(1))
    assert found.resource == "gpu1"
    assert "gpu1: dependsOn: gpu0 is not among what it waits for: both are replaced" in found.message
    assert "Fix: depends_on=[gpu0]: servers of pool main form one chain" in found.message


def test_two_that_wait_for_the_same_one_are_refused() -> None:
    found = judged(server(0), server(1).after("gpu0"), server(2).after("gpu0"))
    assert "gpu2: dependsOn: gpu1 is not among" in found
    assert "gpu1: dependsOn" not in found


def test_a_chain_may_lead_by_way_of_something_else() -> None:
    between = publisher().after("gpu0")
    assert judged(server(0), between, server(1).after("publisher")) == ""
    assert "gpu1: dependsOn" in judged(server(0), publisher(), server(1).after("publisher"))


def test_as_many_chains_are_accepted_as_the_pools_publisher_says() -> None:
    several = publisher().labelled(pool="main", max_unavailable="2")
    two_chains = [server(0), server(1), server(2).after("gpu0"), server(3).after("gpu1")]
    assert judged(*two_chains, several) == ""
    assert "gpu1: dependsOn: gpu0 is not among" in judged(*two_chains, publisher().labelled(pool="main"))
    assert "gpu1: dependsOn" in judged(*two_chains, several.labelled(pool="other"))
    three_chains = [server(0), server(1), server(2), server(3).after("gpu0")]
    assert "gpu2: dependsOn: gpu1 is not among what it waits for" in judged(*three_chains, several)
    assert "servers of pool main form 2 chains" in judged(*three_chains, several)


def test_a_label_that_is_no_number_lets_one_be_away() -> None:
    odd = publisher().labelled(pool="main", max_unavailable="two")
    assert "servers of pool main form one chain" in judged(server(0), server(1), odd)
    assert judged(*chain(2), odd) == ""


def test_the_order_in_which_they_are_declared_does_not_matter() -> None:
    assert judged(*reversed(chain(4))) == ""


def test_pools_do_not_wait_for_each_other() -> None:
    other = [one.labelled(pool="other") for one in (server(2), server(3).after("gpu2"))]
    assert judged(*chain(2), *other) == ""


def test_a_front_end_is_no_part_of_a_pool() -> None:
    assert judged(*chain(2), front_end().labelled(pool="main")) == ""


def test_a_pool_whose_models_nobody_knows_is_one_and_without_either_there_is_none() -> None:
    empty = [server(gpu).changed("uploads", []).without("labels") for gpu in (0, 1)]
    assert judged(*empty) == ""
    pool = [{"label": "tf-serving.pool", "value": "main"}]
    assert "servers of pool main form one chain" in judged(*(one.changed("labels", pool) for one in empty))


def test_of_many_ways_between_two_servers_each_step_is_looked_at_once() -> None:
    def ladder(foot: str) -> list[Declared]:
        """60 steps of two, each of which depends on both of the one before: 2**60 ways down."""
        steps = [publisher().named(f"{side}0").after(foot) for side in "ab"]
        for step in range(1, 60):
            below = (f"a{step - 1}", f"b{step - 1}")
            steps += [publisher().named(f"{side}{step}").after(*below) for side in "ab"]
        return steps

    later = server(1).after("a59", "b59")
    assert judged(server(0), *ladder("gpu0"), later) == ""
    apart = [publisher().named("foot"), server(0).after("foot"), *ladder("foot"), later]
    assert "gpu1: dependsOn: gpu0 is not among" in judged(*apart)


def test_without_labels_servers_of_one_model_are_a_pool() -> None:
    bare = [server(gpu).without("labels") for gpu in (0, 1)]
    assert "servers of model resnet50 form one chain" in judged(*bare)


def test_in_prod_a_model_has_a_second_instance_or_says_that_it_may_be_down() -> None:
    [found] = violations(RULE, server())
    assert found.resource == "gpu0"
    assert "gpu0: instances: 1 of resnet50: while it is replaced, nobody serves" in found.message
    assert "Fix: a second instance, on another GPU; or the label tf-serving.single: 'true'" in found.message
    assert judged(server(), environment="staging") == ""
    assert judged(server().labelled(single="true")) == ""
    assert judged(server(), leastInstances=1.0) == ""
    assert "instances: 2 of resnet50" in judged(*chain(2), leastInstances=3.0)


def test_a_server_of_several_models_is_named_once() -> None:
    several = server().changed("uploads", []).labelled(models="bert,resnet50")
    [found] = messages(RULE, several)
    assert "instances: 1 of bert: " in found


def test_a_model_is_kept_by_another_pool_that_serves_it() -> None:
    assert judged(server(), server(1).labelled(pool="trial")) == ""


@pytest.mark.parametrize("helps", ["mirror", "canary", "dedicated"])
def test_a_pool_that_only_gets_a_share_of_the_requests_keeps_no_model_and_needs_no_second_instance(
    helps: str,
) -> None:
    trial = server(1).labelled(pool="trial")
    told = publisher().labelled(pool="trial", helps=helps)
    for one in ((server(), trial, told), (server(), trial.labelled(helps=helps))):
        assert "gpu0: instances: 1 of resnet50" in judged(*one)
    assert judged(*chain(2), server(2).labelled(pool="trial"), told) == ""
    without_pool = [server(gpu).without("labels").labelled(models="resnet50") for gpu in (0, 1)]
    assert "instances: 1 of resnet50" in judged(without_pool[0], without_pool[1].labelled(helps=helps))
    assert judged(server(), trial, publisher().labelled(pool="trial", helps="standby")) == ""


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        (None, f"{ROLLING}.maxSurge: 25%: where every GPU is taken"),
        ({"type": "RollingUpdate"}, f"{ROLLING}.maxSurge: 25%: where every GPU is taken"),
        ({"rollingUpdate": {"maxSurge": 1.0}}, f"{ROLLING}.maxSurge: 1: where every GPU is taken"),
        ({"rollingUpdate": {"maxSurge": 0.0, "maxUnavailable": 0.0}}, "maxUnavailable 0: nothing can change"),
        ({"rollingUpdate": {"maxSurge": "0%", "maxUnavailable": "10%"}}, "maxUnavailable 10%: nothing can"),
        (
            {"rollingUpdate": {"maxSurge": 0.0, "maxUnavailable": 4.0}},
            "maxUnavailable: 4: all 4 pods at once",
        ),
        ({"rollingUpdate": {"maxSurge": 0.0, "maxUnavailable": "100%"}}, "100%: all 4 pods at once"),
        ({"type": "Recreate"}, "spec.strategy.type: Recreate: all its pods are gone at once"),
    ],
)
def test_a_strategy_that_stops_or_takes_all_down_is_refused(strategy: object, said: str) -> None:
    bad = deployment().without("spec.strategy") if strategy is None else deployment()
    if strategy is not None:
        bad = bad.changed("spec.strategy", strategy)
    assert said in judged(bad)
    assert "main: spec.strategy" in judged(bad)


@pytest.mark.parametrize(("gpus", "fits"), [("5", True), ("4", False)])
def test_a_surge_is_accepted_where_a_gpu_is_free(gpus: str, fits: bool) -> None:
    surging = deployment().changed(ROLLING, {"maxSurge": 1.0, "maxUnavailable": 0.0})
    assert (judged(surging.labelled(pool_gpus=gpus)) == "") == fits
    requests = "spec.template.spec.containers[0].resources.requests"
    asking = surging.changed(requests, {"nvidia.com/gpu": "1"})
    assert (judged(asking.labelled(pool_gpus=gpus)) == "") == fits


def test_what_serves_no_model_may_surge() -> None:
    other = deployment().without("spec.strategy").labelled(role="other")
    other = other.changed(
        "spec.template.spec.containers[0]", {"name": "web", "image": "registry.example/web:1"}
    )
    assert judged(other) == ""
    assert judged(deployment(), other.named("web")) == ""


def test_a_stateful_set_rolls_by_itself() -> None:
    stateful = replace(deployment().without("spec.strategy"), type="kubernetes:apps/v1:StatefulSet")
    assert judged(stateful) == ""
    at_once = stateful.changed("spec.updateStrategy", {"rollingUpdate": {"maxUnavailable": 4.0}})
    assert "main: spec.updateStrategy.rollingUpdate.maxUnavailable: 4: all 4 pods at once" in judged(at_once)
    by_hand = {"type": "OnDelete", "rollingUpdate": {"maxUnavailable": 4.0}}
    assert judged(stateful.changed("spec.updateStrategy", by_hand)) == ""


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("spec.strategy", "Strategy of main is not known in preview: spec.strategy"),
        (f"{ROLLING}.maxSurge", f"Strategy of main is not known in preview: {ROLLING}.maxSurge"),
        ("spec.replicas", "Number of replicas of main is not known in preview: spec.replicas"),
    ],
)
def test_what_is_not_known_in_preview_is_refused_by_resource(path: str, where: str) -> None:
    assert where in judged(deployment().changed(path, UNKNOWN))
    assert "where every GPU is taken" not in judged(deployment().changed(path, UNKNOWN))


def test_a_share_that_is_none_is_refused() -> None:
    assert "of main cannot be read: spec.strategy.rollingUpdate.maxSurge is a text, not a number" in judged(
        deployment().changed(f"{ROLLING}.maxSurge", "some")
    )


def test_an_autoscaler_alone_says_how_many_there_are() -> None:
    scaled = deployment().without("spec.replicas")
    assert judged(scaled, scaler()) == ""
    assert "main: spec.replicas: 4: scaler scales it" in judged(deployment(), scaler())
    assert judged(deployment(), scaler(name="another")) == ""


def test_an_autoscaler_keeps_pods_and_stays_within_the_gpus() -> None:
    scaled = deployment().without("spec.replicas").labelled(pool_gpus="4")
    assert "scaler: spec.minReplicas: 0: the last pod goes" in judged(scaled, scaler(least=0))
    assert judged(scaled, scaler()) == ""
    assert "instances: 1 of resnet50" in judged(scaled, scaler(least=1))
    assert "the last pod goes" not in judged(scaled, scaler(least=1))
    assert "scaler: spec.maxReplicas: 5 want 5 GPUs, and their nodes have 4" in judged(scaled, scaler(most=5))
    unknown = scaler().changed("spec.minReplicas", UNKNOWN)
    assert "Number of replicas of scaler is not known in preview" in judged(scaled, unknown)


def test_a_server_is_never_exempt_and_a_front_end_is_by_its_label() -> None:
    once = [
        replace(one.labelled(exempt=RULE), delete_before_replace=False) for one in (server(), front_end())
    ]
    found = judged(*once, server(1).after("gpu0"))
    assert "gpu0: deleteBeforeReplace" in found
    assert "envoy" not in found
