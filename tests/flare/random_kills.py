"""Random kills of every process of a real federation, and cuts of its lines; each run must end as an unbroken one does.

    python -m tests.flare.random_kills [--kills 200] [--seed 0] [--journal FILE]

A run is a gang whose rank merges, a coordinator beside it, NVFlare's server and three clients with sandboxed ranks,
and a fault proxy before each client. Faults strike at random times until the rounds are made; a killed rank, client or
coordinator is started again, as its keeper, service manager or driver would. Then these must hold:

- every round was merged, and each was saved once, in order: none is in the model twice;
- at most one round was merged again for each kill of the rank, and none for any other kill;
- without a secure sum the checkpoint has the bits of the unbroken run, for all members answer every round.

A line is printed for each fault and each run. Runs that ended are lines of the journal, so that a campaign that was
broken off continues behind them.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.flare.federation import Federation
from tests.flare.offers import ROSTER, new_key, new_plan
from tests.ports import free_port
from tests.train.gang import KEY, ROOT, Gang, Generation, start_warm

from gangline import procfs
from gangline.checkpoint.format.stored_tensors import stored_digests
from gangline.faults.proxy import FaultProxy, FaultRule
from gangline.federated.rounds import MOST_LOST
from gangline.flare.coordinator import MODULE
from gangline.spec.plan import CheckpointPolicy, Plan

KILLS = ("rank", "coordinator", "server", "server_job", "client", "client_job", "member_rank")
CUTS = ("cut", "reset", "slow")
MOST = {"coordinator": 3, "server": 3}
"""Kills in one run of what its driver starts again a bounded number of times."""
ROUNDS = 24
RUN_SECONDS = 3000.0
SLOW_BYTES_PER_SECOND = 20_000.0


def plan_of(number: int, *, secure: bool, rounds: int = ROUNDS) -> Plan:
    """Plan of run `number`; only its name differs between runs of one kind."""
    table = {"secure_sum": True, "clip_norm": 10.0} if secure else {}
    plan = new_plan(
        run=f"r-{number}", layer_task="sums:Sums", steps=rounds, local_steps=1, quorum=3, round_seconds=90.0, **table
    )
    optimizer = {"elementwise": {"rule": "sgd", "lr": 0.1}}
    return replace(plan, optimizer=optimizer, checkpoint=CheckpointPolicy(every=1))


class Campaign:
    """Kits, clients and proxies, which outlive a run; `run` is one gang with its coordinator."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.warm = start_warm(folder / "warm")
        stack.callback(self.warm.close)
        ports = {name: free_port() for name in ROSTER}
        self.federation = Federation(folder, ports=ports)
        stack.callback(self.federation.close)
        self.proxies = {}
        for name, port in ports.items():
            proxy = FaultProxy("127.0.0.1", self.federation.port)
            proxy.port = port
            self.proxies[name] = stack.enter_context(proxy)
        self.key = new_key()
        for name in ROSTER:
            self.federation.join(name, signer=self.key)
            self.federation.start(name)

    def run(self, plan: Plan, dice: random.Random | None) -> "Ended":
        """One run; without `dice` nothing strikes."""
        with self.federation.gang(plan, self.folder / plan.run, self.warm, key=self.key) as gang:
            broken = BrokenRun(self, gang, plan, dice)
            broken.drive()
        return broken.ended()


@dataclass
class BrokenRun:
    """A run while faults strike it."""

    campaign: Campaign
    gang: Gang
    plan: Plan
    dice: random.Random | None
    faults: Counter[str] = field(default_factory=Counter)
    recovery: list[tuple[str, float]] = field(default_factory=list)
    """Seconds from the first of some faults to the next round that merged."""
    codes: list[int] = field(default_factory=list)
    """Exit codes of the generations of the gang."""

    def drive(self) -> None:
        """Start the gang, strike until its rounds are made, start again what was killed."""
        self.began = time.monotonic()
        generation = self.gang.launch(self.plan)
        strike_at, struck, struck_at, merged = self._next_strike(), "", 0.0, 0
        while (code := self._code(generation)) != 0:
            if code is not None:
                self.codes.append(code)
                if code != 128 + signal.SIGKILL:
                    return
                generation = self.gang.launch(self.plan)
            self._start_clients()
            count, now = len(self.events("round")), time.monotonic()
            if count > merged and struck:
                self.recovery.append((struck, now - struck_at))
                struck = ""
            if count and strike_at < now and self._num_lost() < MOST_LOST // 2:
                struck_at, merged = struck_at if struck else now, count
                struck += ("+" if struck else "") + self._strike()
                strike_at = self._next_strike()
            assert now - self.began < RUN_SECONDS, f"{self.plan.run}: no end; {self.gang.home}"
            time.sleep(0.05)
        self.codes.append(0)

    def _next_strike(self) -> float:
        """A time within the next rounds, or while what was struck last comes back."""
        longest = self.dice.choice((3.0, 40.0)) if self.dice else 0.0
        return time.monotonic() + self.dice.uniform(0.0, longest) if self.dice else float("inf")

    def _num_lost(self) -> int:
        """Attempts that were lost since the last merge: five in a row end a run, whatever is killed."""
        last = [each["event"] for each in self.events("round", "round_lost")][::-1]
        return [*last, "round"].index("round")

    def _strike(self) -> str:
        """Commit one fault, or two at once now and then; returns what they were."""
        assert self.dice is not None, "faults strike"
        kinds = [self.dice.choice(KILLS if self.dice.random() < 0.8 else CUTS)]
        if self.dice.random() < 0.15:
            kinds.append(self.dice.choice(KILLS))
        done = [kind for kind in kinds if self.faults[kind] < MOST.get(kind, 1000) and self._commit(kind)]
        self.faults.update(done)
        said = "+".join(done)
        say(f"  {time.monotonic() - self.began:6.1f} s  round {len(self.events('round')):3}  {said or 'nothing there'}")
        return said

    def _commit(self, kind: str) -> bool:
        """Whether the fault struck anything."""
        name = self.dice.choice(ROSTER)
        proxy = self.campaign.proxies[name]
        if kind == "cut":
            proxy.shut()
            time.sleep(self.dice.uniform(0.2, 3.0))
            proxy.open()
        elif kind == "reset":
            proxy.set_rules(FaultRule(action="reset", direction=self.dice.choice(("up", "down")), after_bytes=1000))
        elif kind == "slow":
            proxy.set_rules(
                FaultRule(action="throttle", direction="up", after_bytes=0, bytes_per_second=SLOW_BYTES_PER_SECOND)
            )
        else:
            pids = list(self._processes(kind, name))
            with suppress(ProcessLookupError):
                for pid in pids[:1]:
                    os.kill(pid, signal.SIGKILL)
                    return True
            return False
        return True

    def _processes(self, kind: str, name: str) -> Iterator[int]:
        """Processes of a kind, at the member `name` where members have it."""
        federation = self.campaign.federation
        if kind == "rank":
            yield from procfs.children(self.campaign.warm.pids()[0])
            return
        words = {"coordinator": MODULE, "server": "server_train", "server_job": "runner_process",
                 "client": "client_train", "client_job": "worker_process",
                 "member_rank": "gangline.train.roles.federated_member"}  # fmt: skip
        if kind in ("client", "client_job", "member_rank"):
            below = procfs.descendants(federation.processes[name].pid)
        else:
            below = procfs.with_variable("GANGLINE_TEST_FEDERATION", str(federation.folder))
        for pid in below:
            command = procfs.command(pid)
            if any(words[kind] in each for each in command) and "python" in command[0]:
                yield pid

    def _start_clients(self) -> None:
        """Start the client of each member again whose process is gone, as a service manager does."""
        for name in ROSTER:
            if self.campaign.federation.processes[name].poll() is not None:
                self.campaign.federation.start(name)

    def _code(self, generation: Generation) -> int | None:
        return generation.codes().get(0)

    def events(self, *kinds: str) -> list[dict]:
        """Events of the rank that are whole lines."""
        path = self.gang.home / "out/ranks/0.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [each for each in map(json.loads, lines) if each["event"] in kinds]

    def ended(self) -> "Ended":
        """What came out."""
        rounds = [each["round"] for each in self.events("round")]
        saved = [each["step"] for each in self.events("saved")]
        digests = None
        if self.codes[-1] == 0:
            found = stored_digests(self.gang.store, self.gang.result().checkpoint, KEY, optimizer=True)
            digests = json.dumps(found, sort_keys=True, default=str)
        else:
            say(f"  {self.events('done')[-1:]}\n{(self.gang.home / 'coordinator/log').read_text()[-3000:]}")
        return Ended(
            run=self.plan.run, seconds=time.monotonic() - self.began, codes=self.codes, faults=dict(self.faults),
            rounds=rounds, saved=saved, lost=len(self.events("round_lost")), recovery=self.recovery, digests=digests,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What a run left."""

    run: str
    seconds: float
    codes: list[int]
    faults: dict[str, int]
    rounds: list[int]
    saved: list[int]
    lost: int
    recovery: list[tuple[str, float]]
    digests: str | None

    @property
    def kills(self) -> int:
        """SIGKILLs that struck a process."""
        return sum(self.faults.get(kind, 0) for kind in KILLS)

    def problems(self, plan: Plan, wanted: str | None) -> list[str]:
        """What does not hold; `wanted` are the digests of the unbroken run, where they are to be equal."""
        repeated = len(self.rounds) - len(set(self.rounds))
        most = self.faults.get("rank", 0)
        claims = {
            f"ended with {self.codes}": self.codes[-1] == 0,
            f"merged rounds {sorted(set(self.rounds))}": sorted(set(self.rounds)) == list(range(1, plan.rounds + 1)),
            f"saved {self.saved}": self.saved == sorted(set(self.saved)),
            f"{repeated} rounds repeated for {most} kills of the rank": repeated <= most,
            "other bits than the unbroken run": wanted in (None, self.digests),
        }
        return [said for said, holds in claims.items() if not holds]


def run_until(
    campaign: Campaign, kills: int, *, seed: int, done: Mapping[str, int], keep: Callable[[Ended], None], rounds: int,
) -> tuple[int, list[str]]:  # fmt: skip
    """Kills that struck, those of `done` runs included, and what did not hold; `keep` is given each run."""
    count, number, problems = sum(done.values()), 0, []
    unbroken = campaign.run(plan_of(0, secure=False, rounds=rounds), None)
    say(f"unbroken: {unbroken.seconds:.1f} s, {len(unbroken.rounds)} rounds")
    problems += unbroken.problems(plan_of(0, secure=False, rounds=rounds), None)
    while count < kills and not problems:
        number += 1
        dice, secure = random.Random(f"{seed}-{number}"), number % 4 == 0
        plan = plan_of(number, secure=secure, rounds=rounds)
        if plan.run in done:
            continue
        say(f"{plan.run}{', secure sum' if secure else ''}: {count} of {kills} kills so far")
        ended = campaign.run(plan, dice)
        found = ended.problems(plan, None if secure else unbroken.digests)
        count, problems = count + ended.kills, problems + [f"{plan.run}: {each}" for each in found]
        say(f"{plan.run}: {ended.seconds:.0f} s, {ended.faults}, {ended.lost} lost, {'; '.join(found) or 'holds'}")
        if not found:
            keep(ended)
    return count, problems


def say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--journal", type=Path, default=ROOT / "build" / "random-kills.jsonl")
    asked = parser.parse_args()
    asked.journal.parent.mkdir(parents=True, exist_ok=True)
    kept = list(map(json.loads, asked.journal.read_text().splitlines())) if asked.journal.exists() else []
    kept = [each for each in kept if (each["seed"], each["of"]) == (asked.seed, asked.rounds)]

    def keep(ended: Ended) -> None:
        line = {"seed": asked.seed, "of": asked.rounds, "run": ended.run, "kills": ended.kills, "faults": ended.faults,
                "lost": ended.lost, "repeated": len(ended.rounds) - len(set(ended.rounds)),
                "seconds": round(ended.seconds, 1), "recovery": ended.recovery}  # fmt: skip
        kept.append(line)
        with asked.journal.open("a") as file:
            print(json.dumps(line), file=file, flush=True)

    done = {each["run"]: each["kills"] for each in kept}
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="federation-") as name:
        Path(name).chmod(0o755)
        campaign = Campaign(Path(name), stack)
        count, problems = run_until(
            campaign, asked.kills, seed=asked.seed, done=done, keep=keep, rounds=asked.rounds
        )  # fmt: skip
    faults: Counter[str] = Counter()
    for each in kept:
        faults.update(each["faults"])
    lost, repeated = (sum(each[name] for each in kept) for name in ("lost", "repeated"))
    say(f"{count} kills in {len(kept)} runs: {dict(faults)}; {lost} rounds lost, {repeated} repeated")
    for each in problems:
        say(f"DOES NOT HOLD: {each}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
