"""Gangs for Slurm, and the golden files of one: `python -m tests.launch.slurm.gangs` writes them."""

from pathlib import Path, PurePath

from gangline.launch.slurm.batch_script import SCRIPT, SlurmGang, batch_script, rank_file
from gangline.spec.gang.podset import PlacedServer

GOLDEN = Path(__file__).parents[2] / "golden" / "slurm"
SERVERS = (("n3", "leaf-2"), ("n1", "leaf-2"), ("n4", "leaf-1"), ("n2", "leaf-1"))
"""In node-rank order, which is no order of names."""


def slurm_gang(servers=SERVERS, **more):
    given = {"name": "bytegpt-9f31c2a0-k7q2mx", "procs_per_node": 8, "folder": PurePath("/shared/gangs")}
    given["launcher"] = ("torchrun", "train.py", "--note", "it's 100 % $HOME")
    given["environment"] = {"NCCL_CROSS_NIC": "0", "NCCL_IB_QPS_PER_CONNECTION": "4"}
    placed = tuple(PlacedServer(name=name, group=group) for name, group in servers)
    return SlurmGang(servers=placed, **given | more)


WORDS = [
    "it's",
    '"$(touch x)"',
    "`id`",
    "a b",
    "$HOME",
    "#SBATCH --nodes=9",
    "line\nline",
    "\\",
    "*",
    "'; exit 3; '",
    "%j",
]
"""Of a launcher, that a shell or Slurm could read as something else."""


def written(gang):
    """The script of `gang`, beside its rank file."""
    folder = Path(gang.folder)
    (folder / gang.ranks.name).write_text(rank_file(gang))
    (folder / SCRIPT).write_text(batch_script(gang))
    return folder / SCRIPT


def drawn():
    """File name to text."""
    gang = slurm_gang()
    return {SCRIPT: batch_script(gang), gang.ranks.name: rank_file(gang)}


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name, text in drawn().items():
        (GOLDEN / name).write_text(text, "utf-8")
