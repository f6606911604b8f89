"""Records as a real line writes them, built by hand: passed, refused, failed, open, and one at the size limit."""

import math
from dataclasses import replace
from typing import Any

from gangline.spec.forecast import Forecast, Term
from gangline.spec.measurements import Band, Curve, CurvePoint, Drill, Ledger, Metric, Proof, RankRow, Samples, Training
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Candidate
from gangline.spec.record import (
    STAGES,
    Artifact,
    Base,
    CommitInfo,
    Driver,
    Event,
    GangInfo,
    Gate,
    Inputs,
    PlanInfo,
    Record,
    RunInfo,
    StageInfo,
)

BASE_SHA = "9f31c2a0" + "4b" * 16
THIS_SHA = "55d01e7b" + "8c" * 16
BASE_RUN = "bytegpt-9f31c2a0-k7q2mx"
THIS_RUN = "bytegpt-55d01e7b-p3m9dc"
DONE = {
    "resolve": (0.4, "9f31c2a0 clean · line bytegpt · base none · run bytegpt-9f31c2a0-k7q2mx"),
    "build": (0.3, "environment 7c1e9a42 (this venv, no image) · code layer d04b77f1: 14 files, 61 kB"),
    "plan": (0.2, "ddp-2: fits every rank whole, nothing to shard · runner-up fsdp-2: gathers parameters at each step"),
    "submit": (0.1, "gang bytegpt-9f31c2a0-k7q2mx: 2 processes on this machine"),
    "train": (15.2, "ddp-2 120/120 loss 2.471 · 9.1 k tokens/s · compute 89 % wait 9 data 2"),
    "evaluate": (31.0, "eval_loss 2.375 · seeds 1 2 3 in one gang: band 2.369 ± 1.6 %"),
    "gate": (0.1, "budget ✓ · reproducible ✓ · quality ? no base yet: this run becomes the base"),
    "prove": (
        26.4,
        "fsdp-2: 53 of 53 tensors equal · 120 steps again: difference 0.0e+00 · same loss within the band: yes",
    ),
    "publish": (0.3, "bytegpt 1: model.safetensors 3.5 MB, signed by local key 1f2e0c7d, in the local store"),
    "report": (0.2, "record.json, report.html, metrics.jsonl"),
}
"""Seconds and message of a stage that is done; a stage that is missing here took 0.1 s and said nothing."""


FORECAST_TERMS = (
    Term(part="compute", seconds=0.100, raw_seconds=0.090, origin="calibrated n=3"),
    Term(part="communication", seconds=0.015, raw_seconds=0.012, origin="calibrated n=3"),
    Term(part="optimizer", seconds=0.004, raw_seconds=0.002, origin="calibrated n=3"),
    Term(part="data", seconds=0.0, origin="default"),
)
MEASURED_TERMS = tuple(
    Term(part=part, seconds=seconds, origin="measured")
    for part, seconds in (("compute", 0.104), ("communication", 0.012), ("optimizer", 0.005), ("other", 0.004))
)


def passed() -> Record:
    """The base: three seeds, a band, proved and published."""
    return Record(
        seq=31,
        nonce="0" * 16,
        run=RunInfo(
            id=BASE_RUN,
            project="bytegpt",
            created="2026-03-02T09:14:05Z",
            driver=Driver(holder="host:4242:a1b2", token=1),
            state="ended",
            verdict="passed",
            exit_code=0,
        ),
        commit=CommitInfo(
            sha=BASE_SHA, tree="1" * 40, branch="main", subject="Train on the sources themselves", protected=True
        ),
        inputs=_inputs(width=128),
        plan=_plan(0.1205, 0.1254),
        gang=GangInfo(
            launcher="local",
            name=BASE_RUN,
            uid="4242-991",
            podset="e" * 64,
            servers=("localhost",),
            admitted="2026-03-02T09:14:06Z",
            released="2026-03-02T09:14:21Z",
        ),
        stages=stages(),
        metrics={
            "eval_loss": Metric(
                value=2.375,
                unit="nats",
                step=120,
                better="lower",
                seeds={"1": 2.375, "2": 2.361, "3": 2.371},
                band=Band(center=2.369, half=0.0379, n=3, origin=BASE_RUN),
            ),
            "bits_per_byte": Metric(value=3.4264, unit="bits", step=120, better="lower"),
        },
        curve=curve(steps=120, end=2.471, seeds=3),
        ranks=rank_rows(2),
        training=Training(
            flops_per_second=88.4e9, wire_bytes_per_step=7_004_160.0, samples=Samples(trained=1920)
        ),
        ledger=Ledger(
            resource="cpu",
            allocated_seconds=34.0,
            seconds={
                "compute": 26.9, "wait": 2.7, "data": 0.6, "build": 1.9, "rendezvous": 0.7, "start": 0.6,
                "checkpoint": 0.4, "stop": 0.2,
            },
        ),
        gates=(
            Gate(name="budget", verdict="yes", reason="0.009 of 1 CPU-h"),
            Gate(name="reproducible", verdict="yes", reason="clean tree, every input by digest"),
            Gate(name="quality:eval_loss", verdict="unknown", reason="no base yet: this run becomes the base"),
        ),
        proof=Proof(
            checkpoint=f"runs/bytegpt/{BASE_SHA}/{BASE_RUN}/checkpoints/step-00000120",
            plan="fsdp-2",
            tensors=53,
            tensors_equal=53,
            replay_steps=120,
            replay_difference=0.0,
            same_loss="yes",
        ),
        links={"report": f"runs/bytegpt/{BASE_SHA}/{BASE_RUN}/report.html"},
        artifacts=artifacts(BASE_SHA, BASE_RUN),
        events=(Event(time="2026-03-02T09:14:06Z", stage="submit", kind="gang", text="2 of 2 ranks joined in 0.7 s"),),
    )  # fmt: skip


def refused() -> Record:
    """A narrower model: faster, smaller, worse than the band of its base allows."""
    base = passed()
    band = Band(center=2.369, half=0.0379, n=3, origin=BASE_RUN)
    stage = stages(failed="gate", message="quality ✗ eval_loss 2.52 against 2.369 ± 1.6 % · budget ✓ · reproducible ✓")
    return replace(
        base,
        run=replace(base.run, id=THIS_RUN, verdict="refused", exit_code=60, reason="eval_loss is outside the band"),
        commit=CommitInfo(
            sha=THIS_SHA,
            tree="2" * 40,
            branch="narrower",
            subject="narrower",
            base=Base(commit=BASE_SHA, run=BASE_RUN),
            changed=("line.toml",),
        ),
        inputs=_inputs(width=64),
        plan=_plan(0.071, 0.0738),
        gang=replace(base.gang, name=THIS_RUN, generations=2, restarts=1),
        training=Training(
            flops_per_second=41.2e9, wire_bytes_per_step=1_751_040.0, resumes={"node": 1}, steps_redone=4,
            samples=Samples(trained=1920),
        ),
        stages=stage,
        metrics={
            "eval_loss": Metric(
                value=2.52, unit="nats", step=120, better="lower", seeds={"1": 2.52}, base=2.375, base_band=band
            )
        },
        curve=curve(steps=120, end=2.66, banded=True),
        gates=(
            Gate(name="quality:eval_loss", verdict="no", reason="2.52 against 2.369 ± 1.6 %: outside the band"),
            Gate(name="budget", verdict="yes", reason="0.006 of 1 CPU-h"),
            Gate(name="reproducible", verdict="yes", reason="clean tree, every input by digest"),
        ),
        proof=None,
        drills=(
            Drill(
                name="kill-rank", row="T1", result="held", reason="resumed at step 60", detect_seconds=0.08,
                recover_seconds=3.1, lost_steps=4, lost_seconds=3.6, arguments={"rank": 1, "step": 64},
            ),
        ),
        artifacts=artifacts(THIS_SHA, THIS_RUN)[1:],
    )  # fmt: skip


def failed() -> Record:
    """A rank met a loss that is not finite."""
    base = passed()
    reason = "rank 1 of 2: loss is not finite at step 37; see gangline logs --failed"
    return replace(
        base,
        run=replace(base.run, id="bytegpt-9f31c2a0-zzzzzz", verdict="failed", exit_code=31, reason=reason),
        stages=stages(failed="train", message=reason, code=31),
        metrics={},
        curve=Curve(),
        training=Training(samples=Samples(trained=576)),
        gates=(),
        proof=None,
        artifacts=(),
    )


def bare() -> Record:
    """A run that has just been born."""
    base = passed()
    return Record(
        run=replace(base.run, state="open", verdict=None, exit_code=None),
        commit=base.commit,
        inputs=Inputs(line="c" * 64),
    )


def large(ranks: int = 256, steps: int = 10_000) -> Record:
    """As much as a record may hold: 64 rank rows that stand for `ranks`, 64 points that stand for `steps`."""
    small = refused()
    words = "gathers every parameter twice a step and hides neither gather behind compute on this fabric"
    candidate = small.plan.candidates[-1]
    losers = tuple(replace(candidate, name=f"hsdp-{n}x{ranks // n}", reason=words) for n in (2, 4, 8, 16, 32, 64))
    events = tuple(
        Event(time=f"2026-03-02T09:{i // 60:02d}:{i % 60:02d}Z", stage="train", kind="note", text=f"{i}: {words}")
        for i in range(200)
    )
    many = tuple(
        replace(artifact, key=f"{artifact.key}-{i:05d}") for i, artifact in enumerate(small.artifacts * 40)
    )  # 160
    return replace(
        small,
        plan=replace(small.plan, world_size=ranks, steps=steps, candidates=small.plan.candidates + losers),
        curve=curve(steps=steps, end=2.66, seeds=3, banded=True),
        ranks=rank_rows(min(ranks, 64), nodes=8),
        metrics={f"metric_{i:02d}": replace(small.metrics["eval_loss"], value=2.4 + i / 100) for i in range(16)},
        commit=replace(small.commit, changed=tuple(f"src/package/module_{i:03d}.py" for i in range(100))),
        artifacts=many,
        events=events,
    )


def curve(*, steps: int, end: float, seeds: int = 0, banded: bool = False) -> Curve:
    places = [max(1, round(steps * (i + 1) / 64)) for i in range(64)]
    values = [_loss(i / 63, end) for i in range(64)]
    reference = [_loss(i / 63, 2.471) for i in range(64)]
    return Curve(
        points=tuple(
            CurvePoint(
                step=step,
                value=value,
                low=centre * 0.984 if banded else None,
                high=centre * 1.016 if banded else None,
            )
            for step, value, centre in zip(places, values, reference, strict=True)
        ),
        seed_points={
            str(seed): tuple(v * (1 + 0.004 * math.sin(seed * 7 + i)) for i, v in enumerate(values))
            for seed in range(1, seeds + 1)
        },
        key="metrics.jsonl",
    )


def _loss(share: float, end: float) -> float:
    return end + (5.55 - end) * math.exp(-5.2 * share) + 0.015 * math.sin(share * 70)


def rank_rows(count: int, nodes: int = 1) -> tuple[RankRow, ...]:
    rows = []
    for rank in range(count):
        slow = 1.35 if rank == min(5, count - 1) else 1 + 0.01 * math.sin(rank)
        seconds = {"data": 0.31, "forward": 4.2 * slow, "backward": 8.6 * slow, "optimizer": 0.42, "checkpoint": 0.2}
        seconds["wait"] = max(0.2, 5.1 - 12.8 * (slow - 1))
        seconds["other"] = 0.12
        rows.append(
            RankRow(
                rank=rank,
                node=f"node-{rank % nodes}",
                phases=seconds,
                step_seconds=0.125 * slow,
                peak_memory_bytes=412_000_000 + rank * 1000,
            )
        )
    return tuple(rows)


def stages(*, failed: str | None = None, message: str = "", code: int = 60) -> dict[str, StageInfo]:
    """All done, or up to the one that failed, with the report after it."""
    infos, minute, over = {}, 5.0, False
    for name in STAGES:
        seconds, said = DONE.get(name, (0.1, ""))
        if over and name != "report":
            infos[name] = StageInfo(state="skipped", message=f"after {failed}")
            continue
        infos[name] = StageInfo(
            state="failed" if name == failed else "done",
            started=f"2026-03-02T09:14:{minute:04.1f}Z" if minute < 60 else f"2026-03-02T09:15:{minute - 60:04.1f}Z",
            seconds=seconds,
            tries=1,
            exit=code if name == failed else 0,
            message=message if name == failed else said,
        )
        over = over or name == failed
        minute += seconds
    infos["plan"] = replace(infos["plan"], outputs={"name": "ddp-2", "steps": 120})
    if failed:
        said = f"{infos['build'].message} · unchanged since {BASE_RUN}"
        infos["build"] = replace(infos["build"], state="taken", taken_from=BASE_RUN, message=said)
    return infos


def artifacts(sha: str, run: str) -> tuple[Artifact, ...]:
    prefix = f"runs/bytegpt/{sha}/{run}"
    rows = (
        ("model", "model/model.safetensors", "application/octet-stream", 3_502_344),
        ("metrics", "metrics.jsonl", "application/jsonl", 18_233),
        ("plan", "plan.json", "application/json", 5_120),
        ("checkpoint", "checkpoints/step-00000120/manifest.json", "application/json", 9_871),
        ("sbom", "model/sbom.cdx.json", "application/json", 40_100),
    )
    return tuple(
        Artifact(kind=kind, key=f"{prefix}/{key}", media_type=media, size_bytes=size, sha256=f"{i:x}" * 64)
        for i, (kind, key, media, size) in enumerate(rows)
    )


def _inputs(*, width: int) -> Inputs:
    values: dict[str, Any] = {
        "project.name": "bytegpt", "model.width": width, "model.layers": 4, "train.steps": 120, "train.seed": 1,
        "evaluate.seeds": 3,
    }  # fmt: skip
    return Inputs(
        line=f"{width:x}" * 32,
        tables={"model": f"{width:x}" * 32},
        code="d04b77f1" * 8,
        environment="7c1e9a42" * 8,
        data="a" * 64,
        seeds=(1, 2, 3),
        versions={"gangline": "0.2.0", "python": "3.11.7", "torch": "2.15.0"},
        values=values,
    )


def _plan(forecast: float, measured: float) -> PlanInfo:
    origin = "record bytegpt-0c0ffee0-aaaaaa"
    rows = (
        ("ddp-2", "ddp", "chosen", "fits every rank whole, nothing to shard", forecast, Mesh(dp_replicate=2)),
        ("fsdp-2", "fsdp", "runner_up", "gathers parameters at each step", forecast * 1.14, Mesh(dp_shard=2)),
        ("none", "none", "lost", "leaves a core idle", None, Mesh()),
    )
    candidates = tuple(
        Candidate(
            name=name,
            strategy=strategy,
            mesh=mesh,
            verdict=verdict,
            reason=reason,
            forecast=Forecast(parameters=875_264, step_seconds=seconds, origin=origin if seconds else "unknown"),
        )
        for name, strategy, verdict, reason, seconds, mesh in rows
    )
    return PlanInfo(
        digest="b" * 64,
        key="blobs/sha256/" + "b" * 64,
        name="ddp-2",
        strategy="ddp",
        mesh=Mesh(dp_replicate=2),
        world_size=2,
        steps=120,
        global_batch=16,
        micro_batch=8,
        precision="fp32",
        device="cpu",
        reason="fits every rank whole, nothing to shard",
        candidates=candidates,
        forecast=Forecast(
            parameters=875_264, step_seconds=forecast, memory_bytes=400_000_000, origin=origin, terms=FORECAST_TERMS
        ),
        measured=Forecast(
            parameters=875_264, step_seconds=measured, memory_bytes=int(measured * 3.3e9), wall_seconds=15.2,
            origin="measured n=120", terms=MEASURED_TERMS,
        ),
    )  # fmt: skip
