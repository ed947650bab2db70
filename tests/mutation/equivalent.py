"""Mutants that behave as the rule does, by its module: what is changed to what, and why it is the same."""

EQUIVALENT: dict[str, dict[tuple[str, str], str]] = {
    "credentials_need_tls": {
        (
            "if 'filter_chain' not in text or not _CREDENTIAL.search(text)",
            "if False",
        ): "such a text has no listener, or none that asks; it only saves reading it",
        (
            "'filter_chain' not in text or not _CREDENTIAL.search(text)",
            "not _CREDENTIAL.search(text)",
        ): "such a text has no listener; it only saves reading it",
        (
            "'filter_chain' not in text or not _CREDENTIAL.search(text)",
            "'filter_chain' not in text",
        ): "none of its listeners asks; it only saves reading it",
    },
    "gpu_memory": {
        ("said is None and _is_zero(text)", "_is_zero(text)"): "fraction() has None for every zero",
        ("0 < said <= _MOST", "0 <= said <= _MOST"): "fraction() has None for every zero",
    },
    "only_the_front_end_publishes": {
        (
            "if not _HAS_ADMIN.search(text)",
            "if False",
        ): "such a text has no admin page either; it only saves reading it",
    },
    "safe_rollout": {
        (
            "behind not in seen and depths[behind] > depths[earlier]",
            "behind not in seen",
        ): "what is no deeper than `earlier` does not lead to it; it only saves looking there",
        (
            "depths[behind] > depths[earlier]",
            "depths[behind] >= depths[earlier]",
        ): "what is as deep as `earlier` does not lead to it; it only saves looking there",
    },
}
