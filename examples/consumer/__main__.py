"""Passes on what another team's clients and Prometheus need to know of a serving stack."""

from collections.abc import Mapping

import pulumi
from tf_serving_contract import ContractError, StackOutputs, read_outputs


def checked(values: Mapping[str, object]) -> StackOutputs:
    """The stack's outputs, typed; what is wrong with them ends the program in a sentence, not a traceback."""
    try:
        return read_outputs(values)
    except ContractError as error:
        raise pulumi.RunError(str(error)) from None


def predict_urls(outputs: StackOutputs) -> dict[str, list[str]]:
    """Where each model answers predictions, node by node."""
    return {model.name: [f"{url}:predict" for url in model.rest_urls] for model in outputs.models}


def scrape_targets(outputs: StackOutputs) -> list[dict[str, object]]:
    """What a Prometheus on a node reads, in the form of its `file_sd_configs`."""
    return [
        {
            "targets": [target.address],
            "labels": {"job": target.job, "node": target.node, "__metrics_path__": target.path},
        }
        for target in outputs.metrics_targets
    ]


serving = pulumi.StackReference(pulumi.Config().require("serving_stack"))
outputs = serving.outputs.apply(checked)
pulumi.export("predict_urls", outputs.apply(predict_urls))
pulumi.export("grpc_targets", outputs.apply(lambda read: read.grpc_targets))
pulumi.export("scrape_targets", outputs.apply(scrape_targets))
