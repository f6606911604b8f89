"""Slurm as a site describes it: its folder, its servers, and what Slurm refuses before anything is measured."""

import os
import sys
from dataclasses import replace

import pytest

from gangline.errors import CapacityError, ConfigError
from gangline.line.gangs.slurm_site import slurm_inventory, slurm_root
from gangline.spec.config.site import GpuTable, Site
from gangline.spec.config.site_tables import SlurmTable

_STUB = """
import pathlib, sys
print((pathlib.Path(sys.argv[1]) / f"{sys.argv[2]}.out").read_text(), end="")
error = pathlib.Path(sys.argv[1]) / f"{sys.argv[2]}.error"
if error.exists():
    print(error.read_text(), file=sys.stderr)
    sys.exit(1)
"""


@pytest.fixture
def site(tmp_path):
    (tmp_path / "sbatch.out").write_text("")
    via = (sys.executable, "-c", _STUB, str(tmp_path))
    return Site(slurm=SlurmTable(shared=str(tmp_path), via=via, partition="gpu"))


def test_gangs_of_a_user_are_in_a_folder_closed_to_others(site, tmp_path):
    root = slurm_root(site)
    assert root == tmp_path / f"gangs-{os.getuid()}"
    assert root.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("shared", [None, "/no/such/folder"])
def test_folder_that_is_not_there_is_refused(shared, site):
    with pytest.raises(ConfigError, match=r"slurm\.shared: wanted"):
        slurm_root(replace(site, slurm=replace(site.slurm, shared=shared)))


def test_inventory_is_the_most_numerous_kind_with_gpus(site, tmp_path):
    (tmp_path / "sinfo.out").write_text(
        "gpu|4|64|1024|gpu:h100:8|idle\ngpu|2|32|2048|gpu:h100:8|mix\ngpu|3|64|1024|gpu:a100:8|idle\ngpu|90|8|1|(null)|idle\n"
    )
    found = slurm_inventory(replace(site, gpu={"H100": GpuTable(memory_bytes=80e9)}))
    assert (found.num_nodes, found.cores, found.memory_bytes) == (6, 32, 2**30)
    assert (found.gpus.name, found.gpus.count, found.gpus.memory_bytes) == ("h100", 8, 80_000_000_000)


def test_one_kind_that_the_site_states_names_gpus_without_a_name(site, tmp_path):
    (tmp_path / "sinfo.out").write_text("gpu|4|64|1024|gpu:8|idle\n")
    assert slurm_inventory(replace(site, gpu={"h100": GpuTable(memory_bytes=80e9)})).gpus.name == "h100"
    assert slurm_inventory(site).gpus.name == ""


def test_servers_without_gpus_are_their_cores(site, tmp_path):
    (tmp_path / "sinfo.out").write_text("gpu|4|64|1024|(null)|idle\n")
    found = slurm_inventory(site)
    assert (found.gpus, found.num_nodes, found.cores) == (None, 4, 64)


def test_partition_without_servers_is_refused(site, tmp_path):
    (tmp_path / "sinfo.out").write_text("gpu|4|64|1024|(null)|down\n")
    with pytest.raises(ConfigError, match=r"slurm\.partition: wanted servers that are up"):
        slurm_inventory(site)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("sbatch: error: invalid partition specified: gpu", ConfigError),
        ("allocation failure: Requested time limit is invalid (missing or exceeds some limit)", ConfigError),
        ("allocation failure: Job violates accounting/QOS policy", CapacityError),
    ],
)
def test_what_slurm_refuses_is_refused_in_its_sentence(said, error, site, tmp_path):
    (tmp_path / "sbatch.error").write_text(said)
    with pytest.raises(error, match=said.rpartition("error: ")[2].partition(" (")[0].removeprefix("allocation ")):
        slurm_inventory(site)
