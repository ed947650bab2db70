"""BatchingConfig: how one pool's servers batch, as the file that they read at start."""

import hashlib
from dataclasses import dataclass

import pulumi

from components.batching_parameters import batching_parameters
from components.pool_settings import Batching


@dataclass(frozen=True, kw_only=True)
class BatchingConfigArgs:
    """What a stack file says of a pool's batching."""

    batching: Batching


class BatchingConfig(pulumi.ComponentResource):
    """Batching parameters of a pool, shared by its instances.

    Outputs: `text`, the file; `sha256` of it, which says whether two pools batch alike; `max_batch_size`, in
    examples: what another team's client may send in one request.
    """

    text: pulumi.Output[str]
    sha256: pulumi.Output[str]
    max_batch_size: pulumi.Output[int]

    def __init__(
        self, name: str, args: BatchingConfigArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("tf-serving:batching:BatchingConfig", name, None, opts)
        text = batching_parameters(args.batching)
        self.text = pulumi.Output.from_input(text)
        self.sha256 = pulumi.Output.from_input(hashlib.sha256(text.encode()).hexdigest())
        self.max_batch_size = pulumi.Output.from_input(args.batching.max_batch_size)
        self.register_outputs(
            {"text": self.text, "sha256": self.sha256, "max_batch_size": self.max_batch_size}
        )
