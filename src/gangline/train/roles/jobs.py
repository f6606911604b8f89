"""Jobs of an evaluate or prove gang: trainings and evaluations one after another, on the same ranks."""

from typing import Any

from gangline.spec.gang import JobResult
from gangline.spec.plan import Job
from gangline.train.context import Context
from gangline.train.loop.engine import Course
from gangline.train.loop.evaluation import evaluate
from gangline.train.loop.trainer import Trainer
from gangline.train.results import losses_of
from gangline.train.roles.splits import open_split
from gangline.train.task import Task


def run_job(context: Context, task: Task, job: Job, number: int, holdout: Any) -> JobResult | None:
    """Train from step 0 or open a checkpoint, then evaluate; None: asked to stop. Collective."""
    plan = context.plan
    steps = (job.steps or plan.last_step) if job.train else 0
    context.events.emit("job_started", seed=job.seed, index=number, jobs=len(plan.jobs), steps=steps)
    trainer = Trainer(context, task, Course(seed=job.seed, steps=steps, job=number))
    engine = trainer.engine
    if job.checkpoint is not None:
        engine.resume(at=job.checkpoint)
    if job.train:
        trainer.train(open_split(context, task, "train", seed=job.seed))
    engine.close()
    if engine.stopped:
        return None
    metrics = evaluate(trainer, holdout)
    step = engine.progress.step
    context.events.emit("evaluated", step=step, seed=job.seed, metrics=metrics)
    losses = losses_of(context.metrics, seed=trainer.course.seed, job=trainer.course.job)
    return JobResult(seed=job.seed, step=step, metrics=metrics, losses=losses)
