"""Federated training beside rivals: a secure sum against homomorphic encryption, a simulation against Flower's.

    python benchmarks/federated.py [--numbers 1000000] [--tenseal PYTHON] [--flower PYTHON] [--members 10] [--rounds 3]

The rivals are in environments of their own, which the two options name: one with `tenseal`, one with `flwr[simulation]`
and torch. Without an option its row is left out. Seconds of the sum are processor seconds of all members and the
coordinator together, in one process; those of a simulation are wall seconds of a fresh process, from its start to its
end, with the same model, data, steps and number of processes.

Bounds: a secure sum takes at most a tenth of the bytes and a twentieth of the time of encryption; a simulation takes at
most half of Flower's time.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
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


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--numbers", type=int, default=10**6)
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--tenseal", default="")
    parser.add_argument("--flower", default="")
    parser.add_argument("--json", type=Path, default=ROOT / ".gangline" / "benchmarks" / "federated.json")
    asked = parser.parse_args()
    found = {"sum": sums(asked), "simulation": simulations(asked)}
    print(json.dumps(found, indent=1))
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(found, indent=2) + "\n")
    bounds = {"bytes_ratio": 0.1, "seconds_ratio": 0.05, "ratio": 0.5}
    ratios = {name: value for row in found.values() for name, value in row.items() if name in bounds}
    return 0 if all(value <= bounds[name] for name, value in ratios.items()) else 1


def sums(asked: argparse.Namespace) -> dict:
    from gangline.federated.protocol import Contribution
    from gangline.federated.secure_sum import Occasion, SecureSum, add
    from gangline.federated.simulated_identities import identity_of, make_identities
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


if __name__ == "__main__":
    sys.exit(ours(*map(int, sys.argv[2:])) if sys.argv[1:2] == ["ours"] else main())
