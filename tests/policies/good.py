"""Good resources as a program declares them, under the provider's names: a test breaks one in one way."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pulumi_policy.proxy import UNKNOWN_STRING_VALUE

from tests import stacks

CONTAINER = "docker:index/container:Container"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
SERVICE = "kubernetes:core/v1:Service"
UNKNOWN = UNKNOWN_STRING_VALUE
"""What the SDK puts in place of a value that is not known in a preview."""
PROD_HOST = "ssh://deploy@gpu-01.example.com"
BATCHING = (
    "max_batch_size { value: 32 }\nbatch_timeout_micros { value: 2000 }\n"
    "num_batch_threads { value: 2 }\nallowed_batch_sizes: 8\nallowed_batch_sizes: 32\n"
)
CLUSTER = "https://cluster.example.com"
Props = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A resource, where its provider reaches (None: the default one), and the names of what it depends on."""

    type: str
    name: str
    props: Props
    host: str | None = PROD_HOST
    depends_on: tuple[str, ...] = ()
    delete_before_replace: bool = False

    @property
    def urn(self) -> str:
        """Its URN."""
        return f"urn:pulumi:test::project::{self.type}::{self.name}"

    def changed(self, path: str, value: object) -> "Declared":
        """A copy in which `path` (`ports[0].ip`) holds a value; an index one past the end appends."""
        return replace(self, props=stacks.changed(self.props, path, value))

    def without(self, path: str) -> "Declared":
        """A copy that lacks `path`."""
        return replace(self, props=stacks.without(self.props, path))

    def labelled(self, **labels: str) -> "Declared":
        """A copy with further labels of ours (`all_gpus` stands for `tf-serving.all-gpus`)."""
        named = {f"tf-serving.{name.replace('_', '-')}": value for name, value in labels.items()}
        if self.type == CONTAINER:
            kept = [label for label in self.props.get("labels", []) if label["label"] not in named]
            return self.changed("labels", kept + _labels(named))
        path = "spec.template.metadata.labels"
        return self.changed(path, {**stacks.value_at(self.props, path), **named})

    def named(self, name: str) -> "Declared":
        """A copy under another name."""
        props = {**self.props, "name": name} if self.type == CONTAINER else self.props
        return replace(self, name=name, props=props)

    def after(self, *names: str) -> "Declared":
        """A copy that depends on others."""
        return replace(self, depends_on=names)

    def on(self, host: str | None) -> "Declared":
        """A copy on another machine."""
        return replace(self, host=host)


def uuid(gpu: int) -> str:
    """The UUID of a GPU of the machine."""
    return stacks.uuid(gpu)


def server(gpu: int = 0, name: str | None = None) -> Declared:
    """A model server on one GPU, as this project makes them: it keeps every rule in prod."""
    name = name or f"gpu{gpu}"
    models = (
        'model_config_list {\n  config {\n    name: "resnet50"\n    base_path: "/models/resnet50"\n  }\n}\n'
    )
    return Declared(
        type=CONTAINER,
        name=name,
        props={
            "name": name,
            "image": f"tensorflow/serving:2.14.1-gpu@sha256:{'0' * 64}",
            "entrypoints": ["/usr/bin/tensorflow_model_server"],
            "command": [
                "--port=8500",
                "--rest_api_port=8501",
                "--model_config_file=/etc/tf-serving/models.config",
                "--enable_batching=true",
                "--batching_parameters_file=/etc/tf-serving/batching.config",
                "--grpc_max_threads=64",
                "--rest_api_num_threads=64",
                "--enable_profiler=false",
            ],
            "envs": ["TF_CPP_MIN_LOG_LEVEL=0", "TF_FORCE_GPU_ALLOW_GROWTH=true"],
            "deviceRequests": [
                {"driver": "nvidia", "deviceIds": [uuid(gpu)], "capabilities": ["gpu"]},
            ],
            "cpuSet": ["0-15,64-79", "16-31,80-95", "32-47,96-111", "48-63,112-127"][gpu],
            "memory": 98304.0,  # as protobuf hands numbers over
            "memorySwap": 98304.0,
            "shmSize": 64.0,
            "capabilities": {"drops": ["ALL"]},
            "securityOpts": ["no-new-privileges:true"],
            "networkMode": "bridge",
            "networksAdvanced": [{"name": "prod-serving", "ipv4Address": f"172.29.80.{10 + 7 * gpu}"}],
            "mounts": [
                {
                    "type": "bind",
                    "source": "/srv/models/resnet50",
                    "target": "/models/resnet50",
                    "readOnly": True,
                }
            ],
            "uploads": [
                {"file": "/etc/tf-serving/models.config", "content": models},
                {"file": "/etc/tf-serving/batching.config", "content": BATCHING},
            ],
            "healthcheck": {
                "tests": ["CMD", "bash", "-c", "probe", "8501", "/v1/models/resnet50/metadata"],
                "interval": "5s",
                "timeout": "10s",
                "startPeriod": "10m0s",
                "retries": 3.0,
            },
            "wait": True,
            "waitTimeout": 600.0,
            "restart": "unless-stopped",
            "mustRun": True,
            "init": True,
            "stopSignal": "SIGTERM",
            "stopTimeout": 10.0,
            "destroyGraceSeconds": 10.0,
            "user": "0:0",
            "labels": _labels(
                {
                    "tf-serving.stack": "prod",
                    "tf-serving.node": "gpu-01",
                    "tf-serving.role": "instance",
                    "tf-serving.instance": name,
                    "tf-serving.gpu": uuid(gpu),
                    "tf-serving.slot": f"gpu{gpu}",
                    "tf-serving.pool": "main",
                    "tf-serving.models": "resnet50",
                    "tf-serving.owner": "ml-platform",
                    "tf-serving.load-timeout-s": "600",
                }
            ),
        },
        delete_before_replace=True,
    )


def front_end() -> Declared:
    """Envoy, published on one address of the machine, its metrics on the loopback."""
    bootstrap = (
        "admin:\n  address:\n    socket_address: {address: 127.0.0.1, port_value: 9901}\n"
        "static_resources: {}\n"
    )
    return Declared(
        type=CONTAINER,
        name="envoy",
        props={
            "name": "envoy",
            "image": f"envoyproxy/envoy:v1.40.0@sha256:{'0' * 64}",
            "entrypoints": ["/usr/local/bin/envoy"],
            "command": ["-c", "/etc/envoy/envoy.yaml"],
            "ports": [
                {"internal": 8080.0, "external": 8080.0, "ip": "10.0.0.7", "protocol": "tcp"},
                {"internal": 9902.0, "external": 9902.0, "ip": "127.0.0.1", "protocol": "tcp"},
            ],
            "memory": 1024.0,
            "memorySwap": 1024.0,
            "capabilities": {"drops": ["ALL"]},
            "securityOpts": ["no-new-privileges:true"],
            "networkMode": "bridge",
            "networksAdvanced": [
                {"name": "prod-serving", "ipv4Address": "172.29.80.2"},
                {"name": "prod-front", "ipv4Address": "172.29.80.130"},
            ],
            "uploads": [{"file": "/etc/envoy/envoy.yaml", "content": bootstrap}],
            "healthcheck": {
                "tests": ["CMD", "probe", "9901", "/ready"],
                "interval": "2s",
                "timeout": "10s",
                "startPeriod": "1m0s",
                "retries": 3.0,
            },
            "wait": True,
            "waitTimeout": 60.0,
            "restart": "unless-stopped",
            "mustRun": True,
            "init": True,
            "stopSignal": "SIGTERM",
            "stopTimeout": 10.0,
            "destroyGraceSeconds": 10.0,
            "user": "101:101",
            "labels": _labels(
                {
                    "tf-serving.stack": "prod",
                    "tf-serving.node": "gpu-01",
                    "tf-serving.role": "front-end",
                    "tf-serving.owner": "ml-platform",
                }
            ),
        },
        delete_before_replace=True,
    )


def publisher(**facts: str) -> Declared:
    """The one-shot container that carries the facts of a node in its labels (`node_gpus`)."""
    declared = Declared(
        type=CONTAINER,
        name="publisher",
        props={
            "name": "publisher",
            "image": f"tensorflow/serving:2.14.1-gpu@sha256:{'0' * 64}",
            "entrypoints": ["/bin/bash", "-c"],
            "command": ["cp /in/* /config/"],
            "mounts": [{"type": "volume", "source": "main-config", "target": "/config"}],
            "uploads": [],
            "restart": "no",
            "mustRun": False,
            "memory": 64.0,
            "memorySwap": 64.0,
            "capabilities": {"drops": ["ALL"]},
            "securityOpts": ["no-new-privileges:true"],
            "user": "0:0",
            "labels": _labels(
                {
                    "tf-serving.stack": "prod",
                    "tf-serving.node": "gpu-01",
                    "tf-serving.role": "publisher",
                    "tf-serving.owner": "ml-platform",
                }
            ),
        },
        delete_before_replace=True,
    )
    return declared.labelled(**facts)


def exporter() -> Declared:
    """A GPU exporter: it sees every GPU, owns none, and says so."""
    return Declared(
        type=CONTAINER,
        name="dcgm",
        props={
            "name": "dcgm",
            "image": f"nvcr.io/nvidia/k8s/dcgm-exporter:3.3.9@sha256:{'0' * 64}",
            "gpus": "all",
            "memory": 512.0,
            "memorySwap": 512.0,
            "ports": [{"internal": 9400.0, "external": 9400.0, "ip": "127.0.0.1", "protocol": "tcp"}],
            "securityOpts": ["no-new-privileges:true"],
            "labels": _labels(
                {
                    "tf-serving.stack": "prod",
                    "tf-serving.owner": "ml-platform",
                    "tf-serving.exempt": "one-model-per-gpu,only-the-front-end-publishes",
                }
            ),
        },
    )


def deployment(name: str = "main", replicas: int = 4) -> Declared:
    """Model servers on Kubernetes, one GPU each."""
    labels = {
        "tf-serving.stack": "staging",
        "tf-serving.role": "instance",
        "tf-serving.pool": name,
        "tf-serving.models": "resnet50",
        "tf-serving.owner": "ml-platform",
        "tf-serving.load-timeout-s": "600",
    }
    return Declared(
        type=DEPLOYMENT,
        name=name,
        host=CLUSTER,
        props={
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "replicas": float(replicas),
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxSurge": 0.0, "maxUnavailable": 1.0},
                },
                "progressDeadlineSeconds": 900.0,
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "nodeSelector": {"nvidia.com/gpu.product": "A100"},
                        "terminationGracePeriodSeconds": 30.0,
                        "volumes": [{"name": "config", "configMap": {"name": "main-config"}}],
                        "containers": [
                            {
                                "name": "server",
                                "image": f"tensorflow/serving:2.14.1-gpu@sha256:{'0' * 64}",
                                "command": ["/usr/bin/tensorflow_model_server"],
                                "args": [
                                    "--port=8500",
                                    "--rest_api_port=8501",
                                    "--model_name=resnet50",
                                    "--model_base_path=/models/resnet50",
                                    "--enable_profiler=false",
                                    "--enable_batching=true",
                                    "--batching_parameters_file=/config/batching.config",
                                    "--grpc_max_threads=64",
                                    "--rest_api_num_threads=64",
                                    "--tensorflow_intra_op_parallelism=16",
                                    "--tensorflow_inter_op_parallelism=16",
                                ],
                                "env": [{"name": "TF_FORCE_GPU_ALLOW_GROWTH", "value": "true"}],
                                "volumeMounts": [
                                    {"name": "config", "mountPath": "/config", "readOnly": True}
                                ],
                                "startupProbe": {
                                    "httpGet": {"path": "/v1/models/resnet50/metadata", "port": 8501.0},
                                    "periodSeconds": 5.0,
                                    "failureThreshold": 180.0,
                                },
                                "readinessProbe": {
                                    "httpGet": {"path": "/v1/models/resnet50/metadata", "port": 8501.0},
                                    "periodSeconds": 5.0,
                                },
                                "lifecycle": {"preStop": {"exec": {"command": ["sleep", "25"]}}},
                                "securityContext": {"allowPrivilegeEscalation": False},
                                "resources": {
                                    "limits": {"nvidia.com/gpu": "1", "memory": "96Gi", "cpu": "16"}
                                },
                            }
                        ],
                    },
                },
            },
        },
    )


def config_map(text: str = BATCHING) -> Declared:
    """The batching parameters of `deployment`."""
    return Declared(
        type=CONFIG_MAP,
        name="main-config",
        host=None,
        props={"metadata": {"name": "main-config"}, "data": {"batching.config": text}},
    )


def service(kind: str = "ClusterIP", **selector: str) -> Declared:
    """A Kubernetes service; `role` in its selector stands for `tf-serving.role`."""
    chosen = {f"tf-serving.{name}": value for name, value in selector.items()}
    return Declared(
        type=SERVICE,
        name="service",
        host=None,
        props={"metadata": {"name": "service"}, "spec": {"type": kind, "selector": chosen}},
    )


def _labels(labels: Mapping[str, str]) -> list[Props]:
    return [{"label": label, "value": value} for label, value in sorted(labels.items())]
