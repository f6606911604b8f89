"""Where the leader of a gang listens. On one machine it takes any free port and writes the number to the gang's folder.

A port that is chosen before the leader listens may be taken meanwhile by another program of the machine.
"""

from contextlib import suppress

from gangline.keeper.ipc.environment import KeeperEnvironment
from gangline.storage.folder.durable_files import replace_file

PORT_FILE = "control-port"
_MOST_DIGITS = 5


def publish_port(environment: KeeperEnvironment, port: int) -> None:
    """Write the port of the leader's listener for the followers, if the launcher left the choice to the leader."""
    if environment.control_port == 0:
        replace_file(environment.home / PORT_FILE, str(port).encode(), durable=False)


def find_port(environment: KeeperEnvironment) -> int | None:
    """Port at which the leader listens now, or listened before it died; None: it has not listened yet."""
    if environment.control_port:
        return environment.control_port
    with suppress(OSError, ValueError), (environment.home / PORT_FILE).open("rb") as file:
        port = int(file.read(_MOST_DIGITS + 1))  # ranks may write what they like to this folder
        return port if 0 < port <= 65535 else None
    return None
