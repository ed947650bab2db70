"""Rules, each through the SDK's own proxies: a good resource that a test breaks in one way."""
