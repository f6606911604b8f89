"""Takes the cluster down and puts back what it changed on this machine: six settings, its control groups."""

import shutil

from tests.cluster.rig import cgroups, host, places, sysctls
from tests.cluster.rig.trouble import Trouble


def down(*, purge: bool = False) -> None:
    """Idempotent. With `purge` images, keys and logs go, too; servers and layers stay, as they are slow to make."""
    host.stop()
    left = cgroups.remove()
    sysctls.put_back(places.state() / "sysctls.json")
    if left:
        raise Trouble(f"control groups are still in use: {', '.join(map(str, left))}")
    if purge:
        shutil.rmtree(places.state(), ignore_errors=True)
