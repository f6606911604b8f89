"""SL2 on a real Slurm: drivers that are killed at any time of their submission leave one job of the gang, or none."""

import subprocess
import sys
import time

import pytest
from tests.contracts.launcher.gangs import SLEEPER, poll
from tests.launch.slurm.cluster.stand import SlurmStand

pytestmark = pytest.mark.tools

DRIVER = """
import sys
from pathlib import Path
from gangline.launch.slurm.launcher import SlurmLauncher
from gangline.spec.config.site_tables import SlurmTable
from gangline.spec.gang.podset import PodSet
from gangline.storage.open import open_store
root, store, podset, *via = sys.argv[1:]
launcher = SlurmLauncher(
    Path(root), store=open_store(store), secrets=lambda name: f"value of {name}".encode(),
    table=SlurmTable(via=tuple(via)),
)
print("begins", flush=True)
launcher.submit(PodSet.from_json(Path(podset).read_bytes()))
print("submitted", flush=True)
"""
ROUNDS = 12
STEP_SECONDS = 0.06
"""Between the moments at which drivers die: a submission takes about half a second."""


def test_killed_drivers_start_one_job(slurm, tmp_path):
    stand = SlurmStand(tmp_path, slurm)
    for number in range(ROUNDS):
        podset = stand.podset(SLEEPER, f"killed-{number}", ranks=1)
        (tmp_path / "podset.json").write_bytes(podset.to_json())
        words = (str(stand.root), stand.store.url, str(tmp_path / "podset.json"), *slurm.via)
        with subprocess.Popen([sys.executable, "-c", DRIVER, *words], stdout=subprocess.PIPE, text=True) as driver:
            assert driver.stdout.readline() == "begins\n"
            time.sleep(number * STEP_SECONDS)
            driver.kill()
        gang = stand.again().submit(podset)
        poll(lambda name=podset.name: stand.launcher.status(name).state == "running")
        jobs = slurm.run("squeue", "--noheader", "--states=all", f"--name={podset.name}", "--format=%A %T").stdout
        started = [line for line in jobs.splitlines() if not line.endswith("CANCELLED")]
        assert started == [f"{gang.uid} RUNNING"], jobs
        stand.launcher.cancel(podset.name, reason="seen", save=False)
    stand.close()
