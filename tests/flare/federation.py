"""A real federation on loopback: kits of `nvflare provision`, a server and clients as processes, mutual TLS."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import yaml
from tests.flare.offers import ROSTER, new_orders, new_plan
from tests.ports import free_port
from tests.train.gang import Gang

from gangline import procfs
from gangline.federated.mailbox import MAILBOX, MailboxMembers
from gangline.flare.coordinator import MODULE
from gangline.flare.join import close
from gangline.flare.kit import CLIENT, open_kit
from gangline.flare.member.approval import ADMINISTRATOR
from gangline.flare.member.federation_member import FederationMember, write_settings
from gangline.flare.orders import Coordination, prepare
from gangline.flare.supervisor import supervised
from gangline.storage.objects.code_layer import LayerFile, pack, unpack

ADMIN = "lead@hub.example"
TASK = '''
"""Rows of a CSV file: four numbers and a class."""
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from gangline.train import Loss


class Rows:
    def __init__(self, path):
        self.rows = [[float(each) for each in line.split(",")] for line in path.read_text().split()]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        *numbers, label = self.rows[index]
        return {"x": torch.tensor(numbers), "y": torch.tensor(int(label))}


class Net(nn.Linear):
    def __init__(self):
        super().__init__(4, 2)

    def forward(self, x):
        return super().forward(x)


class Sums:
    def build_model(self, options):
        return Net()

    def example(self, options):
        return {"x": torch.zeros(4), "y": torch.tensor(1)}

    def build_data(self, split, options):
        return Rows(Path(options["folder"]) / f"{split}.csv")

    def loss(self, outputs, batch):
        return Loss(total=cross_entropy(outputs, batch["y"], reduction="sum"), weight=len(batch["y"]))

    def evaluate(self, model, batch):
        return {"accuracy": ((model(batch["x"]).argmax(1) == batch["y"]).sum(), len(batch["y"]))}
'''
CODE = pack([LayerFile("sums.py", TASK.encode())])


def write_rows(folder, *, seed):
    """Training and held-out rows of one member; any user may read them, as data of a sandboxed rank must be."""
    draws = random.Random(seed)
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    for split, size in (("train", 40), ("holdout", 20)):
        rows = [[draws.gauss(0, 1) for _ in range(4)] for _ in range(size)]
        text = "\n".join(",".join([*map(str, row), str(int(sum(row) > 0))]) for row in rows)
        (folder / f"{split}.csv").write_text(text)


@contextmanager
def federation_below(folder: Path) -> Iterator["Federation"]:
    """A federation in an empty folder of this test, which any user may enter."""
    for each in (folder, *folder.parents[:2]):
        each.chmod(0o755)
    found = Federation(folder)
    try:
        yield found
    finally:
        found.close()


class Federation:
    """Kits below one folder, and the processes that were started with them."""

    def __init__(self, folder: Path, names=ROSTER, *, ports=None, server="localhost", port=None) -> None:
        """Args:
        folder: New folder of all that belongs to it.
        names: Of its members.
        ports: Port of this machine that each member dials, where that is not the server's.
        server: Host of the coordinator, which is the name of its kit.
        port: Port of it; None: one that is free here.
        """
        self.folder, self.names, self.port = folder, names, port or free_port()
        participants = [{"name": server, "type": "server", "org": "hub", "fed_learn_port": self.port}]
        for name in names:
            line = {"connect_to": {"host": "localhost", "port": ports[name]}} if ports else {}
            participants.append({"name": name, "type": "client", "org": name.replace("-", "_")} | line)
        participants += [{"name": ADMIN, "type": "admin", "org": "hub", "role": "project_admin"}]
        impl = "nvflare.lighter.impl"
        builders = [
            {"path": f"{impl}.workspace.WorkspaceBuilder", "args": {"template_file": ["master_template.yml"]}},
            {"path": f"{impl}.static_file.StaticFileBuilder", "args": {"config_folder": "config"}},
            {"path": f"{impl}.cert.CertBuilder"},
            {"path": f"{impl}.signature.SignatureBuilder"},
        ]
        project = {"api_version": 3, "name": "fed", "description": "test", "participants": participants}
        (folder / "project.yml").write_text(yaml.safe_dump(project | {"builders": builders}))
        subprocess.run(
            [str(Path(sys.executable).with_name("nvflare")), "provision", "-p", "project.yml", "-w", "ws", "--force"],
            cwd=folder, check=True, capture_output=True,
        )  # fmt: skip
        self.kits = folder / "ws/fed/prod_00"
        self.environ = os.environ | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "GANGLINE_TEST_FEDERATION": str(folder),
            "OMP_NUM_THREADS": "1", "XDG_CONFIG_HOME": str(folder / "config"),
        }  # fmt: skip
        self.processes: dict[str, subprocess.Popen] = {}

    def kit(self, name):
        return open_kit(self.kits / name, CLIENT)

    def join(self, name, *, epsilon=0.0, signer=None):
        """What `gangline federate join` does; code of `signer` runs without a word of the administrator."""
        data = self.folder / f"data-{name}"
        if not data.exists():
            write_rows(data, seed=self.names.index(name))
        write_settings(self.kit(name), data=data, epsilon=epsilon)
        if signer is not None:
            keys = self.kit(name).own / "keys"
            keys.mkdir(exist_ok=True)
            (keys / f"{signer.key_id}.pub").write_bytes(signer.public.pem)
            with self.kit(name).settings.open("a") as file:
                file.write(f'approve = "signed"\nsigners = ["{signer.key_id}"]\n')
        close(self.kit(name))

    def ledger_of(self, name):
        """What each line of a member's ledger is."""
        lines = (self.kit(name).own / "ledger.jsonl").read_text().splitlines()
        return ["training" if json.loads(line)["epsilon"] is None else "reserved" for line in lines]

    def member(self, name):
        return FederationMember(self.kit(name))

    def start(self, name, **environ):
        """Start the NVFlare client of a member."""
        folder = self.kits / name
        with (folder / "out.txt").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(folder / "startup/sub_start.sh"), "--once"], cwd=folder, env=self.environ | environ, stdout=log,
                stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def log(self, name):
        return (self.kits / name / "out.txt").read_text(errors="replace")

    def stop(self, name):
        """Kill a member's client with its job processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.processes[name].pid, signal.SIGKILL)
        self.processes[name].wait()

    def coordinate(self, *, key=None, plan=None, code=CODE, wait_seconds=60.0):
        """Start a coordinator; returns the members as its gang's rank sees them."""
        plan = plan or replace(new_plan(layer_task="sums:Sums"), optimizer={"elementwise": {"rule": "sgd", "lr": 0.5}})
        box, folder = self.folder / "box", self.folder / "coordinator"
        box.mkdir(exist_ok=True)
        prepare(folder, self.coordination(plan, box, wait_seconds), new_orders(plan, code, key), code)
        self.start_coordinator()
        return MailboxMembers(box, on_wait=self.look)

    def coordination(self, plan, box, wait_seconds):
        return Coordination(
            kit=str(self.kits / "localhost"), admin=str(self.kits / ADMIN), mailbox=str(box),
            roster=plan.federation.roster, quorum=plan.federation.table.quorum, wait_seconds=wait_seconds,
        )  # fmt: skip

    def start_coordinator(self):
        folder = self.folder / "coordinator"
        with (folder / "log").open("ab") as log:
            self.processes["coordinator"] = subprocess.Popen(
                [sys.executable, "-m", MODULE, str(folder)], env=self.environ, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    @contextmanager
    def gang(self, plan, home, warm, *, code=CODE, key, wait_seconds=600.0):
        """The gang of a run in the new folder `home`, with its coordinator beside it as a driver keeps one."""
        home.mkdir()
        unpack(code, home / "code")
        gang = Gang(home, warm, home / "code")
        box, folder = home / MAILBOX, home / "coordinator"
        box.mkdir()
        prepare(folder, self.coordination(plan, box, wait_seconds), new_orders(plan, code, key), code)
        with supervised(MODULE, folder, self.environ):
            yield gang

    def look(self):
        if self.processes["coordinator"].poll() not in (None, 0):
            raise AssertionError((self.folder / "coordinator/log").read_text()[-4000:])

    def approve_when_pending(self, *names, seconds=300.0):
        """What an administrator does with `gangline federate approve`."""
        deadline = time.monotonic() + seconds
        left = set(names)
        while left:
            assert time.monotonic() < deadline, f"no code is pending at {left}"
            for name in sorted(left):
                codes = self.member(name).codes
                for each in codes.all():
                    codes.approve(each.offer, by=ADMINISTRATOR)
                    left.discard(name)
            time.sleep(0.2)

    def close(self):
        for name in self.processes:
            self.stop(name)
        for pid in procfs.with_variable("GANGLINE_TEST_FEDERATION", str(self.folder)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def open_server(federation):
    """NVFlare's server of the kit itself, with its own settings and stores in the kit."""
    server = federation.kits / "localhost"
    plain = json.loads((server / "local/resources.json.default").read_text())
    plain["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(server / "snapshots")
    [store] = [each for each in plain["components"] if each["id"] == "job_manager"]
    store["args"]["uri_root"] = str(server / "jobs")
    (server / "local/resources.json").write_text(json.dumps(plain))
    federation.start("localhost")
    return server
