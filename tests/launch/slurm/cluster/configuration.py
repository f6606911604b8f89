"""Files of a small Slurm: seven servers on three leaf switches, each server a host of its own, and two without GPUs.

`task/affinity` binds tasks to cores and `WaitTime` ends steps early, as sites have it: a script must say what it wants.
"""

from collections.abc import Iterator
from pathlib import Path

LEAVES = {"leaf-a": ("a1", "a2"), "leaf-b": ("b1", "b2", "b3"), "leaf-c": ("c1", "c2")}
SPINES = {"spine-1": ("leaf-a", "leaf-b"), "spine-2": ("leaf-c",)}
SERVERS = tuple(server for servers in LEAVES.values() for server in servers)
CPU_SERVERS = ("d1", "d2")
"""Of the partition `cpu`, on a leaf switch of their own."""
CONTROLLER = "ctl"
ADDRESSES = {name: f"10.77.0.{number}" for number, name in enumerate((CONTROLLER, *SERVERS, *CPU_SERVERS), start=1)}
CORES, GPUS = 2, 2
WAIT_SECONDS, KILL_SECONDS = 2, 3
"""After the first task of a step ended, and between SIGTERM and SIGKILL."""
GRACE_SECONDS = 10
"""Between the SIGTERM of a preemption and its end."""

_SLURM = """\
ClusterName=box
SlurmctldHost={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/spool/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
TaskPluginParam=Cores
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
TopologyPlugin=topology/tree
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=1
SlurmdParameters=config_overrides
MpiDefault=none
KillWait={kill_seconds}
WaitTime={wait_seconds}
ReturnToService=2
SlurmdTimeout=10
GresTypes=gpu
NodeName={servers} Sockets=1 CoresPerSocket={cores} RealMemory=1000 Gres=gpu:{gpus}
NodeName={cpu_servers} Sockets=1 CoresPerSocket={cores} RealMemory=1000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
PartitionName=gpu Nodes={servers} Default=YES MaxTime=INFINITE PriorityTier=1 GraceTime={grace_seconds}
PartitionName=cpu Nodes={cpu_servers} MaxTime=INFINITE PriorityTier=1 GraceTime={grace_seconds}
PartitionName=urgent Nodes={servers},{cpu_servers} MaxTime=INFINITE PriorityTier=9 PreemptMode=OFF
"""


def write_configuration(folder: Path) -> None:
    """All files, in `folder`."""
    for name in ("state", "spool", "logs"):
        (folder / name).mkdir()
    text = _SLURM.format(
        folder=folder, controller=CONTROLLER, servers=",".join(SERVERS), cores=CORES, gpus=GPUS,
        kill_seconds=KILL_SECONDS, wait_seconds=WAIT_SECONDS, cpu_servers=",".join(CPU_SERVERS),
        grace_seconds=GRACE_SECONDS,
    )  # fmt: skip
    (folder / "slurm.conf").write_text(text)
    (folder / "topology.conf").write_text("".join(f"SwitchName={switch} {below}\n" for switch, below in _tree()))
    (folder / "gres.conf").write_text("Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n")
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{at} {name}\n" for name, at in ADDRESSES.items()))
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(b"a secret of these tests, which nobody else needs" * 3)


def _tree() -> Iterator[tuple[str, str]]:
    yield from ((leaf, f"Nodes={','.join(servers)}") for leaf, servers in LEAVES.items())
    yield "leaf-d", f"Nodes={','.join(CPU_SERVERS)}"
    yield from ((spine, f"Switches={','.join(leaves)}") for spine, leaves in SPINES.items())
    yield "core", f"Switches={','.join(SPINES)},leaf-d"
