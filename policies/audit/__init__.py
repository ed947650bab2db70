"""The rules over what is deployed, and over rendered Kubernetes YAML, without Pulumi's policy engine."""
