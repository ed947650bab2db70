"""`make policy-audit`: the policy pack's rules over what a stack has deployed, or over Kubernetes YAML."""

import os
import subprocess
from collections.abc import Sequence

from ops import paths, policy, setup
from ops.stack import Stack
from toolchain import python_env


def audit(stack: str, manifests: str, arguments: Sequence[str]) -> int:
    """Print every violation: 0 without a mandatory one, 1 with one, 2 where nothing could be judged."""
    if manifests:
        return _judged([*arguments, "manifests", manifests])
    setup.check_stack_file(stack)
    environment = policy.environment_of(stack)
    # As it is in the state: secrets stay encrypted.
    exported = _pulumi(stack).query("stack", "export")
    return _judged(["--environment", environment, *arguments, "state"], exported)


def _pulumi(stack: str) -> Stack:
    return setup.local_cli() if stack == setup.LOCAL_STACK else setup.team_stack(stack, changes=False)


def _judged(arguments: Sequence[str], state: str = "") -> int:
    """Run the audit in the pack's own environment, with nothing of ours but the pack."""
    command = [str(python_env.ensure_policy_venv()), "-m", "audit", *arguments]
    env = {**os.environ, "PYTHONPATH": str(policy.PACK)}
    return subprocess.run(command, cwd=paths.ROOT, env=env, input=state, text=True, check=False).returncode
