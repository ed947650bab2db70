"""Every object of a stack on Kubernetes, from the Plan alone, in the order in which they are made."""

from components.kubernetes_acceptance import acceptance_objects
from components.kubernetes_front_end import front_end_objects
from components.kubernetes_network import network_policies
from components.kubernetes_object import Object, manifest
from components.kubernetes_plan import KubernetesPlan
from components.kubernetes_scaling import adapter_rules, front_end_scaling, pool_scaling
from components.kubernetes_servers import server_objects

NAMESPACE_KEY = "namespace"


def objects(plan: KubernetesPlan) -> tuple[Object, ...]:
    """All of them; none holds a Secret, and none is named for chance."""
    own = {"name": plan.namespace, "labels": dict(plan.labels)}
    return (
        *(
            [Object(key=NAMESPACE_KEY, manifest=manifest("v1", "Namespace", own))]
            if plan.cluster.create_namespace
            else []
        ),
        # Before the pods: from their first moment nobody else reaches them.
        *network_policies(plan),
        *(
            each
            for servers in plan.servers
            for each in (*server_objects(plan, servers), *pool_scaling(plan, servers))
        ),
        *front_end_objects(plan),
        *front_end_scaling(plan),
        *adapter_rules(plan),
        *acceptance_objects(plan),
    )
