"""Rows, orders and records as pages get them: usual ones, as many as a page may hold, and ones full of tricks."""

import random
import time
from dataclasses import replace
from functools import cache

from tests.report import records

from gangline.report.progress import StageProgress
from gangline.serve.database.types import Order, Principal, RunFilter, RunRow
from gangline.serve.pages import render_compare, render_login, render_problem, render_run, render_runs
from gangline.serve.runs.index_row import row_of
from gangline.spec.measurements import Band, Curve, CurvePoint, Ledger, Metric
from gangline.spec.record import Record, StageInfo, Waiting

NOW = 1_772_500_000.0
MAINTAINER = Principal(name="mara", roles={"*": "maintainer"})
READER = Principal(name="rolf", roles={"bytegpt": "reader"})
TRICKS = (
    "<script>window.hacked=1</script>\"'><img src=x onerror=window.hacked=1> javascript:window.hacked=1 "
    "\x1b[31mred\x1b[0m \u202egnorw\u202c {{ 7*7 }} %0d%0aSet-Cookie:x=1 " + "W" * 10_000
)


def iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def row(number: int, **changed) -> RunRow:
    """A run of main, each older than the one before."""
    chance = random.Random(number)
    side = chance.choice(["better", "same", "same", "worse"])
    value = 2.37 * {"better": 0.97, "same": 1.002, "worse": 1.04}[side]
    usual = RunRow(
        run=f"bytegpt-{number:08x}-k7q2mx", project="bytegpt", commit=f"{number:08x}" * 5, branch="main",
        subject=f"Change {number}", pull_request=None, trust="own", state="ended",
        verdict="refused" if side == "worse" else "passed", reason="eval_loss is outside the band" * (side == "worse"),
        attempt=1, created=iso(NOW - 600 - number * 4000), plan="ddp-8", metric="eval_loss", value=value, base=2.37,
        side=side, seconds=900.0 + number, stage="gate" if side == "worse" else "report", waiting=None, exit_code=0,
        seq=9,
    )  # fmt: skip
    return replace(usual, **changed)


def rows(count: int = 50) -> list[RunRow]:
    many = [row(number) for number in range(count)]
    many[0] = row(0, state="open", verdict="open", metric=None, value=None, base=None, side="unknown", stage="train")
    many[1] = row(1, state="open", verdict="open", metric=None, value=None, base=None, side="unknown", stage="submit",
                  trust="fork", pull_request=231, waiting="8 of 8 GPUs are held by vision-77aa01bc-q1aaaa")  # fmt: skip
    return many


def orders() -> list[Order]:
    return [
        Order(id=1, project="bytegpt", ref="refs/heads/main", branch="main", state="queued", created=NOW - 40),
        Order(id=2, project="bytegpt", ref="refs/pull/231/head", pull_request=231, trust="fork", created=NOW - 20),
        Order(id=3, project="bytegpt", ref="refs/heads/big", branch="big", state="parked", tries=2, created=NOW - 900,
              not_before=NOW + 95, note="no room: 8 GPUs wanted, 3 free"),
        Order(id=4, project="bytegpt", ref="refs/heads/old", branch="old", state="quarantined", tries=5,
              note="the forge answers 403", created=NOW - 90_000),
        Order(id=5, project="bytegpt", ref="refs/heads/done", branch="done-long-ago", state="done",
              run="bytegpt-11111111-aaaaaa", created=NOW - 90_000),
    ]  # fmt: skip


COUNTS = {("bytegpt", "passed"): 812, ("bytegpt", "refused"): 31, ("digits", "passed"): 40, ("bytegpt", "open"): 2}


def running(**changed) -> Record:
    """Training, the stages before it done, everything after it waiting."""
    record = records.refused()
    before = ("resolve", "build", "plan", "submit")
    stages = {name: info if name in before else StageInfo() for name, info in record.stages.items()}
    stages["train"] = StageInfo(state="running", started=iso(NOW - 60))
    usual = replace(
        record,
        run=replace(record.run, state="open", verdict=None, reason="", exit_code=None, created=iso(NOW - 100)),
        stages=stages, metrics={}, curve=Curve(), gates=(), proof=None, drills=(), artifacts=(), ranks=(), ledger=None,
        links={"forge": "https://git.example/c/1", "kfp": "https://kfp.example/#/runs/details/1", "report": "runs/x/y"},
    )  # fmt: skip
    return replace(usual, **changed)


def waiting() -> Record:
    """A fork's gang that nobody approved and that has no room."""
    record = running()
    held = Waiting(who="8 of 8 GPUs are held by vision-77aa01bc-q1aaaa", until="19:40", would_start_now="2 GPUs: ddp-2")
    return replace(
        record, commit=replace(record.commit, trust="fork", pull_request=231), gang=replace(record.gang, waiting=held)
    )


def progress() -> StageProgress:
    seen = StageProgress("train", plan="ddp-2", steps=120, step=62, losses=[4.0, 3.5, 3.0, 2.71])
    seen.speeds.append((0.12, 1100.0))
    return seen


def family(count: int = 10) -> list[Record]:
    """A base with a band, and runs around it; one failed, one on other data."""
    base, narrow = records.passed(), records.refused()
    band = Band(center=2.369, half=0.0379, n=3, origin=base.run.id)
    others = []
    for number in range(1, count):
        value = 2.375 * (1 + 0.01 * (number - 4))
        others.append(
            replace(
                narrow,
                run=replace(narrow.run, id=f"bytegpt-{number:08x}-aaaaaa", created=iso(NOW + number)),
                commit=replace(narrow.commit, subject=f"Change {number}"),
                curve=records.curve(steps=120, end=2.471 * value / 2.375),
                metrics={"eval_loss": Metric(value=value, unit="nats", better="lower", base=2.375, base_band=band)},
                inputs=replace(
                    narrow.inputs,
                    values=narrow.inputs.values | {"model.width": 32 * number},
                    data="b" * 64 if number == 2 else narrow.inputs.data,
                ),
            )
        )
    if count > 3:
        others[2] = replace(others[2], metrics={}, run=replace(others[2].run, verdict="failed"))
    return [base, *others]


def tricky() -> Record:
    """Tricks in every text that a stranger can reach."""
    record = running()
    return replace(
        records.refused(),
        run=replace(records.refused().run, reason=TRICKS),
        commit=replace(record.commit, subject=TRICKS, branch=TRICKS, changed=(TRICKS,)),
        metrics={TRICKS: records.refused().metrics["eval_loss"]},
        gates=tuple(replace(gate, name=TRICKS, reason=TRICKS) for gate in records.refused().gates),
        stages=records.refused().stages | {"train": StageInfo(state="failed", message=TRICKS, taken_from=TRICKS)},
        ranks=tuple(replace(each, node=TRICKS) for each in records.refused().ranks),
        events=tuple(replace(each, text=TRICKS, stage=TRICKS) for each in records.refused().events),
        artifacts=tuple(replace(each, key=f"{TRICKS[:200]}/{i}") for i, each in enumerate(records.refused().artifacts)),
        inputs=replace(record.inputs, values={TRICKS: TRICKS}, versions={TRICKS: TRICKS}),
        plan=replace(record.plan, name=TRICKS, reason=TRICKS),
        links={TRICKS: "https://x.example/" + TRICKS, "evil": "javascript:window.hacked=1", "data": "data:text/html,x"},
    )


def extreme(value: float) -> Record:
    """One number wherever a record holds one."""
    record = records.refused()
    band = Band(center=value, half=value, n=3, origin="x")
    metric = Metric(value=value, unit="nats", better="lower", base=value, base_band=band, seeds={"1": value})
    return replace(
        record,
        metrics={"m": metric} | {unit: Metric(value=value, unit=unit) for unit in ("B", "s", "1/s")},
        curve=Curve(
            points=tuple(CurvePoint(step=step, value=value, low=value, high=value) for step in range(5)),
            seed_points={str(seed): (value,) * 5 for seed in range(3)},
        ),
        ranks=tuple(replace(r, phases=dict.fromkeys(r.phases, value), step_seconds=value) for r in record.ranks),
        ledger=Ledger(resource="gpu", allocated_seconds=value, seconds={"compute": value, "wait": value}),
        plan=replace(
            record.plan,
            forecast=replace(record.plan.forecast, step_seconds=value, money=value),
            measured=replace(record.plan.measured, step_seconds=value, gpu_hours=value, wall_seconds=value),
        ),
        stages={name: replace(info, seconds=value) for name, info in record.stages.items()},
    )


def tricky_rows() -> list[RunRow]:
    strange = row_of(tricky())
    return [replace(strange, run=f"bytegpt-{i:08x}-aaaaaa", waiting=TRICKS, plan=TRICKS) for i in range(4)]


def list_page(**changed) -> str:
    usual = {"wanted": RunFilter(), "orders": orders(), "next_page": "abc", "principal": MAINTAINER, "now": NOW}
    return render_runs(changed.pop("rows", rows()), **usual | {"counts": COUNTS} | changed)


def run_page(record: Record, **changed) -> str:
    usual = {"base": records.passed(), "principal": MAINTAINER, "live": True, "now": NOW, "csrf": "form-of-session"}
    return render_run(record, **usual | changed)


@cache
def pages() -> dict[str, str]:
    """Every page there is, by name."""
    return {
        "list": list_page(),
        "empty": list_page(rows=[], orders=[], counts={}, next_page=None),
        "tricky-list": list_page(
            rows=tricky_rows(),
            wanted=RunFilter(text=TRICKS[:200], branch=TRICKS[:200], project=TRICKS[:200]),
            orders=[replace(order, note=TRICKS, branch=TRICKS) for order in orders()],
            notice=TRICKS,
        ),
        "passed": run_page(records.passed()),
        "refused": run_page(records.refused()),
        "failed": run_page(records.failed()),
        "bare": run_page(records.bare()),
        "large": run_page(records.large()),
        "running": run_page(running(), progress=progress()),
        "waiting": run_page(waiting()),
        "tricky": run_page(tricky()),
        "compare": render_compare(family(), principal=MAINTAINER),
        "tricky-compare": render_compare(
            [tricky(), replace(tricky(), run=replace(tricky().run, id="b-1-c"), inputs=records.passed().inputs)],
            principal=MAINTAINER,
        ),
        "login": render_login("There is no such token, or it has expired."),
        "problem": render_problem(503, "no answer from s3.example"),
    }
