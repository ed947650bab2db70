"""The pack's process, which Pulumi starts. Never import it: PolicyPack() serves until it is stopped."""

from pack.adapter import PACK, policies
from pulumi_policy import EnforcementLevel, PolicyPack

PolicyPack(name=PACK, policies=policies(), enforcement_level=EnforcementLevel.MANDATORY)
