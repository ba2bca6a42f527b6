"""Two nodes of a Ray cluster on this machine, until the input ends.

    python tests/cluster/nodes.py FOLDER

It writes the address when both are up. A process of its own, because Ray leaves files
and threads open in the process that starts it.
"""

import socket
import sys

from ray.cluster_utils import Cluster

N_TRIES = 5  # Ray gives a node 30 s, which is too short on a busy machine
PORTS = (
    "dashboard_agent_listen_port",
    "metrics_agent_port",
    "metrics_export_port",
    "runtime_env_agent_port",
)


def free_ports() -> dict[str, int]:
    """Return free ports, so that a node need not wait for its parts to choose them."""
    found = [socket.create_server(("127.0.0.1", 0)) for _ in PORTS]
    ports = [each.getsockname()[1] for each in found]
    for each in found:
        each.close()
    return dict(zip(PORTS, ports, strict=True))


def add_node(cluster: Cluster, folder: str) -> None:
    """Add a node, and try again if it took too long."""
    for n_left in reversed(range(N_TRIES)):
        try:
            cluster.add_node(
                num_cpus=2,
                object_store_memory=80_000_000,
                include_dashboard=False,
                temp_dir=folder,
                **free_ports(),
            )
        except Exception:  # Ray raises nothing narrower
            if not n_left:
                raise
        else:
            return


def main(folder: str) -> None:
    """Start the nodes, say where, and wait."""
    cluster = Cluster()
    try:
        add_node(cluster, folder)
        add_node(cluster, folder)
        sys.stdout.write(f"at {cluster.address}\n")
        sys.stdout.flush()
        sys.stdin.read()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
