"""The labels by which a stack's containers and networks are found in an engine, as the plan sets them."""

STACK = "tf-serving.stack"
NODE = "tf-serving.node"
ROLE = "tf-serving.role"
ENDING = ("publisher", "acceptance", "drain")
"""Roles of containers that do their work and end: one that has ended well is well."""


def filters(stack: str, node: str | None = None) -> list[str]:
    """Options of `docker ps` and the like: what is a stack's, and of a node where one is named."""
    labels = {STACK: stack} if node is None else {STACK: stack, NODE: node}
    return [f"--filter=label={label}={value}" for label, value in labels.items()]
