from components.plan import make_plan
from components.stack_file import load_stack_file
from ops import labels, paths


def test_what_ops_looks_for_is_what_the_plan_labels() -> None:
    plan = make_plan(load_stack_file(paths.stack_file("prod")), stack="prod", project_folder=str(paths.ROOT))
    for node in plan.nodes:
        for given in (node.front_end.labels, *(instance.labels for instance in node.instances)):
            assert {(labels.STACK, "prod"), (labels.NODE, node.spec.name)} <= set(given)
        # `ops.labelled` finds a network by its stack alone.
        assert (labels.STACK, "prod") in node.network_labels
        assert labels.NODE not in dict(node.network_labels)
