"""Role evaluate: jobs one after another on the same ranks, for several seeds or a checkpoint on held-out data."""

from typing import Any

from gangline.errors import SIGTERM_CODE
from gangline.spec.gang.status import GangResult, JobResult
from gangline.spec.plan import Job
from gangline.train.account.results import losses_of, write_result
from gangline.train.loop.engine import TrainingJob
from gangline.train.loop.evaluation import evaluate
from gangline.train.loop.trainer import Trainer
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.data_splits import fetch_data, open_split
from gangline.train.task import Task


def run_job(context: RankContext, task: Task, job: Job, number: int, holdout: Any) -> JobResult | None:
    """Train from step 0 or load a checkpoint, then evaluate; None if asked to stop. Collective."""
    plan = context.plan
    steps = (job.steps or plan.last_step) if job.train else 0
    context.events.emit("job_started", seed=job.seed, index=number, jobs=len(plan.jobs), steps=steps)
    trainer = Trainer(context, task, TrainingJob(seed=job.seed, steps=steps, number=number))
    engine = trainer.engine
    if job.checkpoint is not None:
        engine.resume(at=job.checkpoint)
    if job.train and plan.federation is not None:
        from gangline.train.roles.federated import train_rounds  # numpy and masks, which few runs need

        train_rounds(trainer, judges=False)
    elif job.train:
        trainer.train(open_split(context, task, "train", seed=job.seed))
    engine.close()
    if engine.stopped:
        return None
    metrics = evaluate(trainer, holdout)
    step = engine.progress.step
    context.events.emit("evaluated", step=step, seed=job.seed, metrics=metrics)
    losses = losses_of(context.metrics, seed=trainer.job.seed, job=trainer.job.number)
    return JobResult(seed=job.seed, step=step, metrics=metrics, losses=losses)


def run(context: RankContext, task: Task) -> int:
    """Exit code of this rank; collective."""
    fetch_data(context)
    results = []
    for number, job in enumerate(context.plan.jobs):
        holdout = open_split(context, task, "holdout", seed=job.seed)
        result = run_job(context, task, job, number, holdout)
        if result is None:
            return SIGTERM_CODE
        results.append(result)
    final = max((result.step for result in results), default=0)
    units = dict(getattr(task, "metric_units", {}))
    gang = GangResult(role="evaluate", final_step=final, jobs=tuple(results), metric_units=units)
    write_result(context.metrics, gang)
    return 0
