"""Edits of a stack file: what each must do to which resource, and how a container then shows it."""

from collections.abc import Mapping
from itertools import zip_longest

from tests.integration.containers import (
    Shows,
    argument,
    each,
    held,
    in_file,
    in_named_file,
    labelled,
    lacks,
    mounted,
    on_network,
    published,
    variable,
)
from tests.integration.edit import (
    FACTS,
    FILES,
    FIRST,
    FRONT,
    LANES,
    PROXY,
    REMOVED,
    Edit,
    Ground,
    PoolEdit,
    drain,
    instance,
    publisher,
    rolled,
    server,
)
from tests.integration.small_stack import uuid

_MIB = 2**20
_SECOND = 10**9
_CLUSTERS, _LISTENERS = "/config/cds.yaml", "/config/lds.yaml"
_RUNS = "/config/.said/envoy"
_ROUTES, _PAGES = "/config/rds-rest.yaml", "/config/rds-metrics.yaml"
SERVER_IMAGE = "again/tf-serving-simulator:2.14.1-gpu"
ENVOY_IMAGE = "again/tf-serving-envoy:1.40.0"
"""Second names of the images that the stack begins with."""


def rounds(ground: Ground) -> list[list[Edit]]:
    """All edits. Those of a round are made in one `up`: no two of them touch the same container."""
    pool_edits = _pool_edits(ground)
    lanes = [[edit.on(lane) for edit in pool_edits[lane :: len(LANES)]] for lane in range(len(LANES))]
    side_by_side = zip_longest(*lanes, _front_end_edits(ground))
    return [[edit for edit in edits if edit] for edits in side_by_side] + _stack_edits(ground)


def _in_batching(text: str) -> Shows:
    return in_named_file("batching_parameters_file", text)


def _in_models(text: str) -> Shows:
    return in_named_file("model_config_file", text)


def _batching(name: str, value: object) -> PoolEdit:
    return PoolEdit({f"batching.{name}": value}, _in_batching(f"{name} {{ value: {value} }}"), publishes=True)


def _pool_edits(ground: Ground) -> list[PoolEdit]:
    elsewhere = str(ground.models / "elsewhere" / "half_plus_two")
    return [
        _batching("max_batch_size", 16),
        _batching("batch_timeout_micros", 3000),
        _batching("num_batch_threads", 3),
        _batching("max_enqueued_batches", 50),
        PoolEdit(
            {"batching.allowed_batch_sizes": [8, 32]},
            _in_batching("allowed_batch_sizes: 8\nallowed_batch_sizes: 32"),
            publishes=True,
        ),
        PoolEdit(
            {"batching.pad_variable_length_inputs": True},
            _in_batching("pad_variable_length_inputs: true"),
            publishes=True,
        ),
        PoolEdit(
            {"batching.enable_large_batch_splitting": True, "batching.max_execution_batch_size": 8},
            _in_batching("max_execution_batch_size { value: 8 }"),
            publishes=True,
        ),
        PoolEdit(
            {"batching.preset": "throughput"},
            _in_batching("max_enqueued_batches { value: 400 }"),
            publishes=True,
        ),
        PoolEdit(
            {"batching": REMOVED, "batching_file": "batching.config"},
            _in_batching("max_enqueued_batches { value: 77 }"),
            publishes=True,
        ),
        PoolEdit(
            {"gpu_memory.allow_growth": False, "gpu_memory.fraction": 0.6},
            variable("TF_FORCE_GPU_ALLOW_GROWTH=false"),
        ),
        PoolEdit({"gpu_memory.fraction": 0.5}, argument("--per_process_gpu_memory_fraction=0.5")),
        PoolEdit(
            {"memory.container_mib": 160},
            each(held("HostConfig.Memory", 160 * _MIB), held("HostConfig.MemorySwap", 160 * _MIB)),
            "updated",
        ),
        PoolEdit({"memory.shm_mib": 32}, held("HostConfig.ShmSize", 32 * _MIB)),
        PoolEdit({"threads.grpc_max": 40}, argument("--grpc_max_threads=40")),
        PoolEdit({"threads.rest": 41}, argument("--rest_api_num_threads=41")),
        PoolEdit({"threads.intra_op": 2}, argument("--tensorflow_intra_op_parallelism=2")),
        PoolEdit({"threads.inter_op": 3}, argument("--tensorflow_inter_op_parallelism=3")),
        PoolEdit(
            {f"server.{name}": value for name, value in _SERVER_FLAGS.items()},
            each(*(argument(f"--{name}={str(value).lower()}") for name, value in _SERVER_FLAGS.items())),
        ),
        PoolEdit({"log_level": "error"}, variable("TF_CPP_MIN_LOG_LEVEL=2")),
        PoolEdit(
            {"load_timeout_s": 70}, held("Config.Healthcheck.StartPeriod", 70 * _SECOND), publishes=True
        ),
        PoolEdit({"gpu.uuid": uuid(9)}, variable(f"NVIDIA_VISIBLE_DEVICES={uuid(9)}"), of_the_node=True),
        PoolEdit({"gpu.cpus": "0-1"}, held("HostConfig.CpusetCpus", "0-1"), "updated", of_the_node=True),
        PoolEdit({"models[0].versions": {"latest": 2}}, _in_models("num_versions: 2"), "", publishes=True),
        PoolEdit(
            {"models[0].versions": {"specific": [1, 2]}, "models[0].labels": {"stable": 1, "canary": 2}},
            _in_models('key: "canary"'),
            "",
            publishes=True,
            routes=True,
        ),
        # Any version may be asked for then, and no label.
        PoolEdit({"models[0].versions": {"all": True}}, _in_models("all {}"), "", publishes=True),
        PoolEdit({"models[0].path": elsewhere}, mounted(elsewhere), publishes=True),
    ]


# Those of the simulated version.
_SERVER_FLAGS: dict[str, str | int | bool] = {
    "num_load_threads": 1,
    "num_unload_threads": 2,
    "max_num_load_retries": 3,
    "load_retry_interval_micros": 4000,
    "file_system_poll_wait_seconds": 5,
    "flush_filesystem_caches": False,
    "saved_model_tags": "serve",
    "enable_model_warmup": False,
    "num_request_iterations_for_warmup": 6,
    "rest_api_enable_cors_support": True,
    "remove_unused_fields_from_bundle_metagraph": False,
    "enable_signature_method_name_check": True,
    "prefer_tflite_model": False,
    "xla_cpu_compilation_enabled": True,
}


def _front_end_edits(ground: Ground) -> list[Edit]:
    rest_port, grpc_port, metrics_port = ground.ports

    def front_end(name: str, value: object, shows: Shows, does: Mapping[str, str]) -> Edit:
        return Edit(name, {f"front_end.{name}": value}, does, {PROXY: shows})

    return [
        front_end("max_request_mib", 9, in_file(_LISTENERS, f"max_request_bytes: {9 * _MIB}"), FILES),
        front_end("max_concurrent", 77, in_file(_CLUSTERS, "max_requests: 77"), FILES),
        front_end("workers", 2, in_file(_RUNS, "--concurrency\n2\n"), FILES),
        # Of one Envoy: the container has room for the one that takes over.
        front_end("memory_mib", 600, held("HostConfig.Memory", 2 * 600 * _MIB), {**FILES, FRONT: "updated"}),
        front_end("rest_port", rest_port, published(rest_port, "127.0.0.1"), {FRONT: "replaced"}),
        front_end("grpc_port", grpc_port, published(grpc_port, "127.0.0.1"), {FRONT: "replaced"}),
        front_end("metrics_port", metrics_port, published(metrics_port, "127.0.0.1"), {FRONT: "replaced"}),
        front_end("bind", "127.0.0.2", published(rest_port, "127.0.0.2"), {FRONT: "replaced"}),
        Edit(
            "balancing",
            {
                "front_end.user_header": "x-account",
                "pools[0].balancing": {"policy": "round_robin", "sticky": True, "bounded_load_percent": 200},
            },
            FILES,
            {PROXY: in_file(_ROUTES, '"x-account"')},
        ),
        Edit(
            "bind of the node",
            {"nodes[0].bind": "127.0.0.3"},
            {FRONT: "replaced"},
            {PROXY: published(rest_port, "127.0.0.3")},
        ),
        Edit(
            "versions",
            {"front_end.versions": {"header": "x-version", "grpc": False}},
            FILES,
            {PROXY: in_file(_ROUTES, '"x-version"')},
        ),
        Edit(
            "images.envoy",
            {"images.envoy": ENVOY_IMAGE},
            {"here-envoy-image": "replaced", **FILES},
            {PROXY: in_file(_RUNS, f"serves\n{ENVOY_IMAGE}\n")},
        ),
    ]


def _stack_edits(ground: Ground) -> list[list[Edit]]:
    return [
        *([edit] for edit in _edits_of_all(ground)),
        [_renamed_pool(), _models_file()],
        [_renamed_model(), _second_model(ground), _models_folder(ground)],
        *_slot_edits(),
        *([edit] for edit in _network_edits(ground)),
    ]


def _edits_of_all(ground: Ground) -> list[Edit]:
    servers = rolled(*range(len(LANES)))
    publishers = {publisher(lane): "replaced" for lane, _ in enumerate(LANES)}
    everything = {**servers, **FILES, FRONT: "replaced"}

    def of_servers(shows: Shows) -> dict[str, Shows]:
        return {instance(gpu): shows for gpu, _ in enumerate(LANES)}

    facts: dict[str, object] = {
        "nodes[0].driver": "535.129.03",
        "nodes[0].memory_mib": 5000,
        **{f"nodes[0].gpus[{gpu}].numa_node": 1 for gpu in range(4)},
    }
    unseen: dict[str, object] = {
        "environment": "staging",
        "nodes[0].address": "localhost",
        "nodes[0].docker.endpoint": ground.docker_host,
        "nodes[0].gpus[0].model": "a100-80g",
        "pools[0].client_batch_size": 4,
        "pools[0].models[0].gpu_mib": 10,
        "pools[0].models[0].disk_mib": 20,
    }
    timeout = argument("--rest_api_timeout_in_ms=31000")
    stop = held("Config.StopTimeout", 2)
    interval = held("Config.Healthcheck.Interval", 2 * _SECOND)
    return [
        Edit("what no container reads", unseen, {}),
        # On labels, for policies: no container reads them either.
        Edit("facts of the node", facts, FACTS),
        Edit(
            "sizes of models",
            {"pools[1].models[0].gpu_mib": 10, "nodes[0].gpus[1].model": "a100-80g"},
            {publisher(1): "replaced"},
        ),
        Edit(
            "all_gpus",
            {"pools[0].all_gpus": True},
            rolled(0),
            {instance(0): labelled("all-gpus", "true")},
        ),
        Edit(
            "owner",
            {"owner": "vision"},
            {**everything, **publishers},
            {**of_servers(labelled("owner", "vision")), PROXY: labelled("owner", "vision")},
        ),
        Edit(
            "images.server",
            {"images.server": SERVER_IMAGE},
            {**servers, **publishers, "here-server-image": "replaced"},
            of_servers(held("Config.Image", SERVER_IMAGE)),
        ),
        Edit(
            "request_timeout_s",
            {"front_end.request_timeout_s": 31},
            {**servers, **FILES},
            {**of_servers(timeout), PROXY: in_file(_LISTENERS, 'request_timeout: "31s"')},
        ),
        Edit(
            "stop_timeout_s",
            {"rollout.stop_timeout_s": 2},
            {**servers, FRONT: "replaced"},
            {**of_servers(stop), PROXY: stop},
        ),
        Edit("health_interval_s", {"rollout.health_interval_s": 2}, servers, of_servers(interval)),
        Edit(
            "drain_timeout_s",
            {"rollout.drain_timeout_s": 29},
            FACTS,
            {PROXY: in_file("/config/drain.conf", " 29\n")},
        ),
        Edit(
            "max_unavailable",
            {"pools[1].max_unavailable": 2},
            {publisher(1): "replaced"},
            {"here-two-publisher": labelled("max-unavailable", "2")},
        ),
    ]


def _renamed_pool() -> Edit:
    return Edit(
        "pool name",
        {"pools[0].name": "first", "pools[0].renamed_from": "one"},
        {
            **rolled(0),
            **FILES,
            "here-first-config-volume": "replaced",
            FIRST: "replaced",
        },
        {instance(0): labelled("pool", "first"), PROXY: in_file(_CLUSTERS, '"rest-first"')},
    )


def _models_file() -> Edit:
    values = {"pools[2].models": REMOVED, "pools[2].models_file": "models.config"}
    return Edit(
        "models_file",
        values,
        {publisher(2): "replaced"},
        {instance(2): _in_models("num_versions: 3")},
    )


def _renamed_model() -> Edit:
    return Edit(
        "model name",
        {"pools[0].models[0].name": "renamed"},
        {**rolled(0), FIRST: "replaced", **FILES},
        {instance(0): _in_models('"renamed"'), PROXY: in_file(_ROUTES, "renamed")},
    )


def _second_model(ground: Ground) -> Edit:
    path = str(ground.models / "half_plus_two")
    optimized = {"kind": "fp16", "path": str(ground.models / "elsewhere" / "half_plus_two")}
    return Edit(
        "a second model, with an optimized form",
        {"pools[1].models[1]": {"name": "second", "path": path, "optimized": optimized}},
        {**rolled(1), publisher(1): "replaced", **FILES},
        {
            instance(1): _in_models('"second_original"'),
            PROXY: in_file(_ROUTES, "second_original"),
        },
    )


def _models_folder(ground: Ground) -> Edit:
    folder = str(ground.models)
    return Edit(
        "models_folder",
        {"pools[2].models_folder": folder},
        {**rolled(2), publisher(2): "replaced"},
        {instance(2): each(mounted(folder), _in_models('base_path: "/models/half_plus_two"'))},
    )


def _slot_edits() -> list[list[Edit]]:
    added = Edit(
        "a slot is added",
        {"pools[0].slots[0].gpus": [0, 3], "pools[0].all_gpus": False},
        {**rolled(0), server(3): "created", drain(3): "created", FIRST: "replaced", **FILES},
        {instance(3): _in_models('"renamed"'), PROXY: in_file(_PAGES, "here-gpu3")},
    )
    reordered = Edit("the order of slots", {"pools[0].slots[0].gpus": [3, 0]}, FACTS)
    no_batching = Edit(
        "no batching",
        {"pools[1].batching": REMOVED},
        {**rolled(1), publisher(1): "replaced"},
        {instance(1): lacks(argument("--enable_batching=true"))},
    )
    moved = Edit(
        "a slot of another pool",
        {"pools[0].slots[0].gpus": [0], "pools[1].slots[0].gpus": [3, 1], "pools[1].max_unavailable": 1},
        {**rolled(3), FIRST: "replaced", publisher(1): "replaced", **FILES},
        {instance(3): _in_models('"two"')},
    )
    removed = Edit(
        "a slot is removed",
        {"pools[1].slots[0].gpus": [1]},
        {server(3): "deleted", drain(3): "deleted", publisher(1): "replaced", **FILES},
        {PROXY: lacks(in_file(_PAGES, "here-gpu3"))},
    )
    return [[added], [reordered, no_batching], [moved], [removed]]


def _network_edits(ground: Ground) -> list[Edit]:
    does = dict.fromkeys(
        [
            *rolled(*range(len(LANES))),
            *(FIRST, publisher(1), publisher(2)),
            *(FRONT, *FILES, "here-serving", "here-front"),
        ],
        "replaced",
    )

    def on_networks(begin: str) -> dict[str, Shows]:
        addresses = {instance(gpu): ground.subnet[10 + 7 * gpu] for gpu, _ in enumerate(LANES)}
        addresses[PROXY] = ground.subnet[2]
        shows = {name: on_network(f"{begin}-serving", str(ip)) for name, ip in addresses.items()}
        return {**shows, PROXY: each(shows[PROXY], on_network(f"{begin}-front", str(ground.subnet[130])))}

    return [
        Edit("subnet", {"nodes[0].subnet": str(ground.subnet)}, does, on_networks(ground.stack)),
        Edit("network_name", {"nodes[0].network_name": "other"}, does, on_networks("other")),
    ]
