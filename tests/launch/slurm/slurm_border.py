"""Slurm as a batch script meets it: `bash SCRIPT` with `scontrol`, and with `srun`, which starts a step on each node.

It sorts the nodes by name, as Slurm does, whatever order the script lists them in, numbers tasks so, and starts them in
another order again.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

from gangline.fabric.topology.inventory import natural_key
from gangline.spec.config.server_ranges import expand_servers

_SRUN = f"""#!{sys.executable}
import os, random, subprocess, sys

words = sys.argv[1:]
command = words[next(place for place, word in enumerate(words) if not word.startswith("--")):]
assert "--export=ALL" in words, "with #SBATCH --export=NONE srun passes nothing on unless it is told to"
nodes = os.environ["FAKE_SLURM_NODES"].split(",")
tasks = list(enumerate(nodes))
random.Random(int(os.environ["FAKE_SLURM_SEED"])).shuffle(tasks)
started = [
    subprocess.Popen(command, env=os.environ | {{"SLURMD_NODENAME": node, "SLURM_PROCID": str(task)}})
    for task, node in tasks
]
sys.exit(max(each.wait() for each in started))
"""
_SCONTROL = """#!/bin/bash
[ "$*" = "show hostnames" ] && tr , "\\n" <<<"$FAKE_SLURM_NODES"
"""
JOB = "17"


def options(script: str) -> dict[str, str]:
    """What `sbatch` reads: the comments above the first command."""
    found = {}
    for line in script.splitlines()[1:]:
        if not line.startswith("#SBATCH --"):
            break
        name, _, value = line.removeprefix("#SBATCH --").partition("=")
        found[name] = value
    return found


def run_batch(
    path: Path, folder: Path, *, seed: int = 0, nodes: tuple[str, ...] = (), **own: str | None
) -> subprocess.CompletedProcess:
    """Run the script as the batch step of a job on the nodes that it lists, or on `nodes`, with `own` variables."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name, text in (("srun", _SRUN), ("scontrol", _SCONTROL)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    listed = nodes or sorted(expand_servers(options(path.read_text())["nodelist"]), key=natural_key)
    environ = {"PATH": f"{programs}:{os.environ['PATH']}", "FAKE_SLURM_NODES": ",".join(listed)}
    environ |= {"SLURM_JOB_ID": JOB, "FAKE_SLURM_SEED": str(seed), "HOME": str(folder)}
    environ |= {name: value for name, value in own.items() if value is not None}
    return subprocess.run(["bash", str(path)], env=environ, capture_output=True, text=True, timeout=60, check=False)


def shuffled(names: list[str], seed: int) -> list[str]:
    """The names in an order of this seed."""
    return random.Random(seed).sample(names, len(names))
