"""The launcher of Slurm to hold to the contract, over the Slurm of the tests."""

from pathlib import Path

from tests.contracts.launcher.gangs import Stand
from tests.launch.slurm.cluster.slurm_cluster import SlurmCluster

from gangline.launch.protocol import Launcher
from gangline.launch.sandbox import Sandbox
from gangline.launch.slurm.launcher import SlurmLauncher
from gangline.spec.config.site_tables import SlurmTable

ASK_SECONDS = 0.2


class SlurmStand(Stand):
    """Drivers outside of the cluster's namespaces, which see its processes and its folder."""

    def __init__(self, root: Path, cluster: SlurmCluster, *, sandbox: Sandbox | None = None, **table: object) -> None:
        self.cluster, self._table = cluster, table
        super().__init__(root, sandbox=sandbox)

    def again(self) -> Launcher:
        table = SlurmTable(via=self.cluster.via, shared=str(self.root.parent), **self._table)
        secrets = lambda name: f"value of {name}".encode()  # noqa: E731
        return SlurmLauncher(
            self.root, store=self.store, secrets=secrets, table=table, sandbox=self.sandbox, ask_seconds=ASK_SECONDS
        )

    def close(self) -> None:
        super().close()
        self.cluster.until(lambda: self.cluster.run("squeue", "--noheader").stdout == "")
