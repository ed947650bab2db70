"""The nodes of a stack: where its containers are looked for; the folder of one that reaches no cluster.

Both can be called without the virtual environment, in which they have the stack file read
(`.venv/bin/python -m ops.nodes STACK [render_to]`).
"""

import json
import sys

from ops import paths, venv
from ops.hosts import Host


def hosts_of(stack: str, default: str | None = None) -> dict[str, Host]:
    """Every node's machine by the node's name; raises UserError for a bad stack file.

    `default` stands in for the endpoint of that name, which is otherwise what `docker` itself reaches.
    """
    return {
        name: Host(default if default and endpoint == "default" else endpoint, tuple(ssh_options), cert_path)
        for name, endpoint, ssh_options, cert_path in json.loads(venv.printed("ops.nodes", stack))
    }


def rendered_to(stack: str) -> str | None:
    """The folder that manifests are written to instead of a cluster; UserError for a bad stack file."""
    folder: str | None = json.loads(venv.printed("ops.nodes", stack, "render_to"))
    return folder


def main(stack: str, what: str = "hosts") -> int:
    """Print what `hosts_of` or `rendered_to` reads."""
    from components.errors import SettingsError
    from components.kubernetes_settings import KubernetesSettings
    from components.stack_file import load_stack_file

    try:
        settings = load_stack_file(paths.stack_file(stack))
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 1
    if what == "render_to":
        print(json.dumps(settings.cluster.render_to if isinstance(settings, KubernetesSettings) else None))
        return 0
    dockers = ((node.name, node.docker) for node in settings.nodes)
    print(json.dumps([[name, one.endpoint, one.ssh_options, one.cert_path] for name, one in dockers]))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
