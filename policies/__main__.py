"""The pack's process, which Pulumi starts. Never import it: PolicyPack() serves until it is stopped."""
# ruff: noqa: E402 - the collector is off, and the pack's own folder is on the path, before the imports

import gc

# What a stack's resources are read into stays until it is judged: there is nothing to collect, and looking
# for it grows with all that is there, so that ten times the resources took fourteen times as long.
gc.disable()

import sys
from pathlib import Path

# Left out by PYTHONSAFEPATH, which some shells set.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from pack.adapter import PACK, policies
from pack.encrypted import keep_what_is_secret
from pack.once import read_once
from pulumi_policy import EnforcementLevel, PolicyPack

keep_what_is_secret()
read_once()
PolicyPack(name=PACK, policies=policies(), enforcement_level=EnforcementLevel.MANDATORY)
