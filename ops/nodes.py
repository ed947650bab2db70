"""The nodes of a stack: where its containers are looked for.

`hosts_of` can be called without the virtual environment, in which it has the stack file read
(`.venv/bin/python -m ops.nodes STACK`).
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


def main(stack: str) -> int:
    """Print what `hosts_of` reads."""
    from components.errors import SettingsError
    from components.stack_file import load_stack_file

    try:
        nodes = load_stack_file(paths.stack_file(stack)).nodes
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 1
    dockers = ((node.name, node.docker) for node in nodes)
    print(json.dumps([[name, one.endpoint, one.ssh_options, one.cert_path] for name, one in dockers]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
