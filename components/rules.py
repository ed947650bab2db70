"""Every rule that holds between parts of a stack file.

A rule is a function that is named for what it demands and yields a `Problem` per finding: of settings, or (a
text rule) of one text of the stack file. What goes where is in `placement_rules.py`, what fits in
`capacity_rules.py`, which pools help which in `routing_rules.py`, what may be released in
`release_rules.py`, what was left behind in `text_rules.py`, what prod asks for on top in `prod_rules.py`.
"""

from collections.abc import Callable, Collection, Iterator, Mapping

from components import (
    capacity_rules,
    placement_rules,
    prod_rules,
    release_rules,
    routing_rules,
    text_rules,
)
from components.errors import Problem
from components.settings import Settings

Rule = Callable[[Settings], Iterator[Problem]]
TextRule = Callable[[str, str], Iterator[Problem]]

RULES: tuple[Rule, ...] = (
    placement_rules.names_are_unique,
    placement_rules.slots_exist,
    placement_rules.slots_have_one_owner,
    placement_rules.shared_slots_have_room,
    placement_rules.models_belong_to_one_pool,
    placement_rules.relative_paths_are_local,
    placement_rules.one_node_per_engine,
    placement_rules.addresses_are_apart,
    placement_rules.subnets_have_room,
    placement_rules.former_names_are_free,
    placement_rules.instance_names_differ,
    placement_rules.volume_names_differ,
    placement_rules.nodes_have_work,
    routing_rules.helping_pools_exist,
    routing_rules.helping_pools_only_help,
    routing_rules.helping_pools_are_on_the_same_nodes,
    routing_rules.helping_pools_serve_nothing_else,
    routing_rules.canaries_find_their_labels,
    routing_rules.dedicated_pools_find_their_models,
    routing_rules.pools_that_take_over_serve_the_same,
    routing_rules.a_pool_falls_back_to_one,
    release_rules.replaced_versions_are_listed,
    release_rules.releases_have_two_versions,
    release_rules.released_pools_stand_alone,
    capacity_rules.memory_fits_the_node,
    capacity_rules.models_fit_twice,
    capacity_rules.image_is_known,
    capacity_rules.driver_runs_the_image,
    capacity_rules.gpu_is_in_the_image,
    capacity_rules.flags_exist_in_the_version,
    capacity_rules.optimized_models_run,
)

PROD_RULES: tuple[Rule, ...] = (
    prod_rules.instances_are_kept_apart,
    prod_rules.cpus_are_not_shared,
    prod_rules.threads_are_said_where_cpus_are_not,
    prod_rules.front_ends_name_their_address,
    prod_rules.keys_travel_encrypted,
    prod_rules.models_are_batched,
    prod_rules.batches_wait_for_company,
    prod_rules.models_outlive_a_replacement,
    prod_rules.images_are_exact_releases,
    prod_rules.somebody_owns_it,
)
"""What the environment `prod` asks for on top."""

TEXT_RULES: tuple[TextRule, ...] = (text_rules.nothing_is_left_to_fill_in, text_rules.secrets_stay_out)

# Without these whole, a rule would tell what only follows from their being wrong. The others compare what is
# there.
_NEEDED_WHOLE: Mapping[Rule, tuple[str, ...]] = {
    placement_rules.slots_exist: ("nodes",),
    placement_rules.nodes_have_work: ("pools",),
    capacity_rules.memory_fits_the_node: ("front_end",),
    capacity_rules.image_is_known: ("images",),
    capacity_rules.driver_runs_the_image: ("images",),
    capacity_rules.gpu_is_in_the_image: ("images",),
    capacity_rules.flags_exist_in_the_version: ("images",),
    capacity_rules.optimized_models_run: ("images",),
    prod_rules.front_ends_name_their_address: ("front_end",),
    prod_rules.keys_travel_encrypted: ("front_end",),
    prod_rules.models_outlive_a_replacement: ("pools",),
    prod_rules.images_are_exact_releases: ("images",),
    prod_rules.somebody_owns_it: ("owner",),
}


def broken_rules(settings: Settings, absent: Collection[str] = ()) -> Iterator[Problem]:
    """Every finding of every rule; those that need what is absent, or not all there, are left out."""
    in_prod = settings.environment == "prod" and "environment" not in absent
    for rule in (*RULES, *PROD_RULES) if in_prod else RULES:
        if not set(absent).intersection(_NEEDED_WHOLE.get(rule, ())):
            yield from rule(settings)
    if settings.target == "kubernetes":
        yield from _broken_on_kubernetes(settings, absent)


def _broken_on_kubernetes(settings: Settings, absent: Collection[str]) -> Iterator[Problem]:
    # Imported here: a stack of Docker Engines does not wait for it.
    from components.kubernetes_rules import KUBERNETES_RULES, NEEDED_WHOLE
    from components.kubernetes_settings import KubernetesSettings

    assert isinstance(settings, KubernetesSettings)  # noqa: S101 - the target says which settings these are
    for rule in KUBERNETES_RULES:
        if not set(absent).intersection(NEEDED_WHOLE.get(rule, ())):
            yield from rule(settings)


def broken_text_rules(config: Mapping[str, object]) -> Iterator[Problem]:
    """Every finding of every text rule in plain values of a stack file, whether or not they are settings."""
    for path, text in text_rules.texts(config):
        for rule in TEXT_RULES:
            yield from rule(path, text)
