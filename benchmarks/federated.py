"""Federated training beside rivals: a secure sum against homomorphic encryption, a simulation against Flower's.

    python benchmarks/federated.py [--numbers 1000000] [--tenseal PYTHON] [--flower PYTHON] [--members 10] [--rounds 3]
    python benchmarks/federated.py --nvflare [--times 3] [--carried-rounds 20]

The first two rivals are in environments of their own, which options name: one with `tenseal`, one with torch and
`flwr[simulation]`. Without an option its row is left out. Seconds of the sum are processor seconds of all members and
the coordinator together, in one process; those of a simulation are wall seconds of a fresh process, from its start to
its end, with the same model, data, steps and number of processes.

The third is NVFlare's own FedAvg recipe on the same carrier: kits of `nvflare provision`, a server and five clients as
processes on loopback, mutual TLS, five members x 20 rounds x 15 steps of the digits, each of which also judges the
weights of a round on its held-out samples. The two take turns. Seconds begin when the server is started and end with
the model on the disk; clients start when the server listens. `cpu_seconds` are those of all processes from the first to
the last; `round_seconds` is the mean from the first round to the last.

Bounds: a secure sum takes at most a tenth of the bytes and a twentieth of the time of encryption; a simulation takes at
most half of Flower's time; a federation takes at most 1.15 of the recipe's time, and 1.3 with a secure sum.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the ranks are those of the tests
MEMBERS = 5

TENSEAL = """
import json, sys, time
import numpy as np, tenseal as ts
numbers, members = int(sys.argv[1]), int(sys.argv[2])
context = ts.context(ts.SCHEME_TYPE.CKKS, poly_modulus_degree=8192, coeff_mod_bit_sizes=[60, 40, 60])
context.global_scale = 2**40
values, size = np.random.default_rng(1).normal(0, 1e-3, numbers), 4096
began, total, sent = time.process_time(), None, 0
for _ in range(members):
    parts = [ts.ckks_vector(context, values[start:start + size]).serialize() for start in range(0, numbers, size)]
    sent += sum(map(len, parts))
    opened = [ts.ckks_vector_from(context, part) for part in parts]
    total = opened if total is None else [one + other for one, other in zip(total, opened)]
found = np.concatenate([part.decrypt() for part in total])
print(json.dumps({"seconds": time.process_time() - began, "bytes": sent / members,
                  "error": float(np.abs(found - members * values).max())}))
"""

FLOWER = """
import sys, torch, numpy as np
from torch import nn
from flwr.client import ClientApp, NumPyClient
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation
sys.path.insert(0, sys.argv[1])
from model import Classifier, DrawnDigits, cross_entropy
members, rounds, steps, processes = map(int, sys.argv[2:6])
torch.set_num_threads(1)
data = DrawnDigits(8192, seed=1, noise=0.3)
shares = np.array_split(np.random.default_rng(1).permutation(len(data)), members)

class Client(NumPyClient):
    def __init__(self, number):
        self.number, self.model = number, Classifier(width=32)
    def fit(self, parameters, config):
        state = self.model.state_dict()
        self.model.load_state_dict({k: torch.tensor(v) for k, v in zip(state, parameters)})
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        order = np.random.default_rng(int(config["round"])).permutation(shares[self.number])
        for step in range(steps):
            rows = [data[int(i)] for i in order[step * 32:(step + 1) * 32]]
            pictures, digits = (torch.stack([row[name] for row in rows]) for name in ("pictures", "digits"))
            optimizer.zero_grad()
            cross_entropy(self.model(pictures), digits).backward()
            optimizer.step()
        return [v.numpy() for v in self.model.state_dict().values()], len(shares[self.number]), {}

def server(context):
    strategy = FedAvg(fraction_fit=1.0, fraction_evaluate=0.0, min_fit_clients=members, min_available_clients=members,
                      on_fit_config_fn=lambda number: {"round": number})
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=rounds))

run_simulation(
    ServerApp(server_fn=server),
    ClientApp(lambda context: Client(int(context.node_config["partition-id"])).to_client()),
    num_supernodes=members,
    backend_config={"client_resources": {"num_cpus": 1.0, "num_gpus": 0.0}, "init_args": {"num_cpus": processes}},
)
"""

RECIPE_CLIENT = """
import sys, time
from pathlib import Path
import torch
import nvflare.client as flare
from nvflare.app_common.abstract.fl_model import FLModel
from members import shares
from model import Classifier, cross_entropy
steps, batch = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
flare.init()
name = flare.get_site_name()
train, holdout = shares(name)
model, order = Classifier(width=32), torch.Generator().manual_seed(1)

def batches(data, indices):
    for start in range(0, len(indices), batch):
        rows = [data[index] for index in indices[start:start + batch]]
        yield tuple(torch.stack([row[key] for row in rows]) for key in ("pictures", "digits"))

while flare.is_running():
    found = flare.receive()
    if found is None:
        break
    with Path(ROUNDS, f"{name}.times").open("a") as file:
        file.write(f"{time.time()}\\n")  # NVFlare replaces print
    model.load_state_dict({key: torch.as_tensor(each) for key, each in found.params.items()})
    model.eval()
    with torch.no_grad():
        right = sum(int((model(x).argmax(1) == y).sum()) for x, y in batches(holdout, list(range(len(holdout)))))
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    drawn = torch.randperm(len(train), generator=order).tolist()[:steps * batch]
    for x, y in batches(train, drawn):
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    flare.send(FLModel(params=model.cpu().state_dict(), metrics={"accuracy": right / len(holdout)},
                       meta={"NUM_STEPS_CURRENT_ROUND": 1}))
"""
RECIPE = """
import json, sys, time
from pathlib import Path
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.fuel.flare_api.flare_api import new_secure_session
kit, folder, members, rounds, steps, batch = sys.argv[1:7]
recipe = FedAvgRecipe(model={"class_path": "model.Classifier", "args": {"width": 32}}, min_clients=int(members),
                      num_rounds=int(rounds), train_script="client.py", train_args=f"{steps} {batch}")
recipe.export(folder)
session = new_secure_session(Path(kit).name, kit, timeout=90.0)
while len(session.get_system_info().client_info) < int(members):
    time.sleep(0.2)
job = session.submit_job(f"{folder}/fedavg")
while not (status := session.get_job_meta(job)["status"]).startswith("FINISHED"):
    time.sleep(0.2)
print("STATUS", status)
session.close()
"""
MEMBER_DATA = '''
"""The digits of one member of five."""
from pathlib import Path

import numpy as np

from model import Digits, DrawnDigits


class Rows:
    def __init__(self, data, indices):
        self.data, self.indices = data, indices

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, index):
        return self.data[int(self.indices[index])]


def shares(name):
    number = int(name.removeprefix("member-"))
    sizes = {1: 8192, 2: 1024}
    return [Rows(DrawnDigits(size, seed=seed, noise=0.2),
                 np.array_split(np.random.default_rng(1).permutation(size), 5)[number])
            for seed, size in sizes.items()]


class MemberDigits(Digits):
    def build_data(self, split, options):
        train, holdout = shares((Path(options["folder"]) / "name.txt").read_text())
        return train if split == "train" else holdout
'''


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--numbers", type=int, default=10**6)
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--tenseal", default="")
    parser.add_argument("--flower", default="")
    parser.add_argument("--nvflare", action="store_true")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--carried-rounds", type=int, default=20)
    parser.add_argument("--json", type=Path, default=ROOT / ".gangline" / "benchmarks" / "federated.json")
    asked = parser.parse_args()
    found = {"carried": carried(asked)} if asked.nvflare else {"sum": sums(asked), "simulation": simulations(asked)}
    print(json.dumps(found, indent=1))
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(found, indent=2) + "\n")
    bounds = {
        "bytes_ratio": 0.1, "seconds_ratio": 0.05, "ratio": 0.5,
        "plain_seconds_ratio": 1.15, "secure_seconds_ratio": 1.3,
    }  # fmt: skip
    ratios = {name: value for row in found.values() for name, value in row.items() if name in bounds}
    return 0 if all(value <= bounds[name] for name, value in ratios.items()) else 1


def sums(asked: argparse.Namespace) -> dict:
    from gangline.federated.protocol import Contribution
    from gangline.federated.secure_sum import Occasion, SecureSum, add, identity_of, make_identities
    from gangline.federated.sum_vector import from_bytes, to_bytes
    from gangline.spec.federated import FederatedTable

    table = FederatedTable(local_steps=1, quorum=3, secure_sum=True, clip_norm=1.0)
    names = [f"m{number}" for number in range(MEMBERS)]
    values = np.random.default_rng(1).normal(0, 1e-4, asked.numbers).astype(np.float32)
    own = {name: SecureSum(identity_of(texts), least=3) for name, texts in make_identities(names).items()}
    occasion = Occasion(run="r", round=1, attempt=1, code="c", roster=tuple(names))
    answers = {name: Contribution(members=(name,), weight=1.0, change={"w": values}, loss=0.0) for name in names}
    began = time.process_time()
    vectors = {name: to_bytes(answers[name], table, roster=MEMBERS) for name in names}
    keys = [own[name].begin(occasion) for name in names]
    masked = [own[name].mask(keys, vectors[name], num_numbers=asked.numbers) for name in names]
    total = from_bytes(
        add(masked, num_numbers=asked.numbers), names, table, roster=MEMBERS, weights={"w": values}, names=[]
    )
    seconds = time.process_time() - began
    began = time.process_time()
    sum(each.change["w"].astype(np.float64) for each in answers.values())
    plain = time.process_time() - began
    row = {
        "numbers": asked.numbers, "members": MEMBERS, "seconds": round(seconds, 3), "plain_seconds": round(plain, 3),
        "bytes": len(masked[0]) + len(keys[0]), "plain_bytes": values.nbytes,
        "error": float(np.abs(total.change["w"] - values).max()),
    }  # fmt: skip
    if asked.tenseal:
        words = [asked.tenseal, "-c", TENSEAL, str(asked.numbers), str(MEMBERS)]
        rival = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        row |= {f"tenseal_{name}": value for name, value in rival.items()}
        row |= {"bytes_ratio": row["bytes"] / rival["bytes"], "seconds_ratio": seconds / rival["seconds"]}
    return row


def simulations(asked: argparse.Namespace) -> dict:
    words = [sys.executable, __file__, "ours", *map(str, (asked.members, asked.rounds, asked.steps, asked.processes))]
    row = {"members": asked.members, "rounds": asked.rounds, "local_steps": asked.steps, "seconds": timed(words)}
    if asked.flower:
        digits = str(ROOT / "examples" / "digits")
        given = map(str, (asked.members, asked.rounds, asked.steps, asked.processes))
        row["flower_seconds"] = timed([asked.flower, "-c", FLOWER, digits, *given])
        row["ratio"] = row["seconds"] / row["flower_seconds"]
    return row


def timed(words: list[str]) -> float:
    """Wall seconds of a process."""
    began = time.perf_counter()
    path = os.pathsep.join(filter(None, [str(ROOT / "examples" / "digits"), str(ROOT), str(ROOT / "src")]))
    done = subprocess.run(words, check=False, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
    return time.perf_counter() - began


def ours(members: int, rounds: int, steps: int, processes: int) -> int:
    """One simulation with ranks that a warm parent forks, saves included."""
    from tests.train.gang import Gang, make_plan, start_warm

    from gangline.spec.federated import FederatedTable, FederationPlan, SimulatedMembers
    from gangline.spec.mesh import Mesh
    from gangline.spec.plan import CheckpointPolicy, ProgramSpec

    table = FederatedTable(local_steps=steps, quorum=members, simulate=SimulatedMembers(members=members))
    roster = tuple(f"member-{number:02}" for number in range(members))
    plan = make_plan(
        "ddp", program=ProgramSpec(task="model:Digits"), model={"width": 32, "noise": 0.3}, steps=rounds * steps,
        global_batch=32, micro_batch=32, optimizer={"elementwise": {"rule": "sgd", "lr": 0.1}},
        checkpoint=CheckpointPolicy(every=steps),
    )  # fmt: skip
    federation = FederationPlan(table=table, roster=roster, simulated=True)
    plan = replace(plan, mesh=Mesh(dp_replicate=processes), federation=federation)
    with tempfile.TemporaryDirectory() as folder:
        code = shutil.copytree(ROOT / "examples" / "digits", Path(folder) / "code")
        warm = start_warm(Path(folder))
        try:
            gang = Gang(Path(folder) / "gang", warm, code)
            codes = gang.run(plan)
            assert codes == [0] * processes, gang.log()
            assert len(gang.events(event="round")) == rounds
        finally:
            warm.close()
    return 0


def carried(asked: argparse.Namespace) -> dict:
    """Federations over NVFlare in turn, and medians of their seconds."""
    kinds, given = ("recipe", "plain", "secure"), [str(asked.carried_rounds), "15", "64"]
    found: dict[str, list[dict]] = {kind: [] for kind in kinds}
    for _ in range(asked.times):
        for kind in kinds:
            words = [sys.executable, __file__, "carried", kind, *given]
            path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
            environ = {**os.environ, "PYTHONPATH": path}
            done = subprocess.run(words, check=False, capture_output=True, text=True, env=environ)
            if done.returncode:
                sys.exit(done.stdout[-2000:] + done.stderr[-4000:])
            found[kind].append(json.loads(done.stdout.splitlines()[-1]))
            print(kind, found[kind][-1], f"load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    row: dict = {"members": MEMBERS, "rounds": asked.carried_rounds, "local_steps": 15, "times": asked.times}
    for name in ("seconds", "cpu_seconds", "round_seconds"):
        of = {kind: float(np.median([each[name] for each in found[kind]])) for kind in kinds}
        row |= {f"{kind}_{name}": round(value, 3) for kind, value in of.items()}
        row |= {f"{kind}_{name}_ratio": round(of[kind] / of["recipe"], 3) for kind in kinds[1:]}
    return row


PROCESSES = ("runner_process", "worker_process", "server_train", "client_train", "federated_member",
             "gangline.flare.coordinator", "warm_parent")  # fmt: skip
"""Words of commands: jobs at the server and at clients, the two themselves, model code, the gang's side."""


class ProcessorSeconds:
    """Processor seconds of all processes below this one, seen five times a second until the block ends.

    What the kernel counts for children that were waited for lacks all that dies with a process namespace.
    """

    def __enter__(self) -> "ProcessorSeconds":
        self._ticks: dict[tuple[int, str], int] = {}
        self._kinds: dict[tuple[int, str], str] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        second = os.sysconf("SC_CLK_TCK")
        self.total = sum(self._ticks.values()) / second
        self.by_kind: dict[str, float] = {}
        for process, ticks in self._ticks.items():
            kind = self._kinds.get(process, "other")
            self.by_kind[kind] = round(self.by_kind.get(kind, 0.0) + ticks / second, 1)

    def _watch(self) -> None:
        from gangline import procfs

        while not self._ended.wait(0.2):
            for pid in procfs.descendants(os.getpid()):
                with suppress(OSError, IndexError):
                    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                    if pid != os.getpid():
                        self._ticks[pid, fields[19]] = int(fields[11]) + int(fields[12])
                        if words := " ".join(procfs.command(pid)):  # a dead process has none
                            kinds = (each for each in PROCESSES if each in words)
                            self._kinds[pid, fields[19]] = next(kinds, "other")


def carried_once(kind: str, rounds: int, steps: int, batch: int) -> int:
    """One federation over NVFlare, in a process that waits for all that is started in it."""
    import ctypes

    from tests.flare.federation import Federation

    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # orphans become children of this process: their seconds count
    names = [f"member-{number}" for number in range(MEMBERS)]
    with tempfile.TemporaryDirectory(prefix="federation-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copytree(ROOT / "examples" / "digits", folder / "modules")
        (folder / "modules" / "members.py").write_text(MEMBER_DATA)
        federation = Federation(folder, names)
        try:
            with ProcessorSeconds() as spent:
                if kind == "recipe":
                    found = recipe_run(federation, rounds, steps, batch)
                else:
                    found = gang_run(federation, rounds, steps, batch, secure=kind == "secure")
        finally:
            federation.close()
    print(json.dumps(found | {"cpu_seconds": round(spent.total, 2), "cpu_by": spent.by_kind}))
    return 0


def recipe_run(federation, rounds: int, steps: int, batch: int) -> dict:
    """NVFlare's recipe on kits as they were provisioned."""
    from tests.flare.federation import ADMIN, open_server

    folder = federation.folder
    (folder / "client.py").write_text(f"ROUNDS = {str(folder)!r}\n" + RECIPE_CLIENT)
    federation.environ["PYTHONPATH"] = str(folder / "modules")
    began = time.perf_counter()
    start_clients_later(federation)
    open_server(federation)
    words = [sys.executable, "-c", RECIPE, str(federation.kits / ADMIN), str(folder / "job"), str(MEMBERS)]
    given = map(str, (rounds, steps, batch))
    done = subprocess.run([*words, *given], check=False, capture_output=True, text=True, cwd=folder,
                          env=federation.environ)  # fmt: skip
    seconds = time.perf_counter() - began
    if "FINISHED:COMPLETED" not in done.stdout:
        sys.exit(done.stdout + done.stderr + federation.log("localhost")[-3000:] + federation.log("member-0")[-3000:])
    times = [float(line) for line in (folder / "member-0.times").read_text().split()]
    assert len(times) == rounds, times
    return {"seconds": seconds, "round_seconds": (times[-1] - times[0]) / (rounds - 1)}


def start_clients_later(federation) -> None:
    """Start all clients once the server listens: one that dialled in vain waits for longer and longer."""

    def start() -> None:
        while True:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", federation.port)).close()
                break
            time.sleep(0.05)
        for name in federation.names:
            federation.start(name)

    threading.Thread(target=start, daemon=True).start()


def gang_run(federation, rounds: int, steps: int, batch: int, *, secure: bool) -> dict:
    """The same over a coordinator of gangline's."""
    from tests.flare.offers import new_key, new_plan
    from tests.train.gang import start_warm

    from gangline.spec.plan import CheckpointPolicy
    from gangline.storage.objects.code_layer import LayerFile, pack

    key, folder = new_key(), federation.folder
    for name in federation.names:
        data = folder / f"data-{name}"
        data.mkdir()
        (data / "name.txt").write_text(name)
        federation.join(name, signer=key)
    table = {"secure_sum": True, "clip_norm": 100.0} if secure else {}
    plan = new_plan(roster=tuple(federation.names), layer_task="members:MemberDigits", steps=rounds * steps,
                    local_steps=steps, quorum=MEMBERS, **table)  # fmt: skip
    plan = replace(
        plan, model={"width": 32, "noise": 0.2}, optimizer={"elementwise": {"rule": "adamw", "lr": 3e-3}},
        checkpoint=CheckpointPolicy(every=steps), global_batch=batch, micro_batch=batch,
    )  # fmt: skip
    layer = pack([LayerFile(each.name, each.read_bytes()) for each in sorted((folder / "modules").glob("*.py"))])
    warm = start_warm(folder / "warm")
    began = time.perf_counter()
    start_clients_later(federation)
    with federation.gang(plan, folder / "gang", warm, code=layer, key=key) as gang:
        generation = gang.launch(plan)
        while not (codes := generation.codes()):
            time.sleep(0.05)
        seconds = time.perf_counter() - began
        assert codes == {0: 0}, gang.log() + (gang.home / "coordinator/log").read_text()[-2000:]
        found = gang.events(event="round")
    warm.close()
    assert len(found) == rounds, found
    return {"seconds": seconds, "round_seconds": (found[-1]["time"] - found[0]["time"]) / (rounds - 1)}


if __name__ == "__main__":
    if sys.argv[1:2] == ["ours"]:
        sys.exit(ours(*map(int, sys.argv[2:])))
    sys.exit(carried_once(sys.argv[2], *map(int, sys.argv[3:])) if sys.argv[1:2] == ["carried"] else main())
