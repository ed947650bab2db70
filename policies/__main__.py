"""The pack's process, which Pulumi starts. Never import it: PolicyPack() serves until it is stopped."""

import sys
from pathlib import Path

# Left out by PYTHONSAFEPATH, which some shells set.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from pack.adapter import PACK, policies
from pack.encrypted import keep_what_is_secret
from pulumi_policy import EnforcementLevel, PolicyPack

keep_what_is_secret()
PolicyPack(name=PACK, policies=policies(), enforcement_level=EnforcementLevel.MANDATORY)
