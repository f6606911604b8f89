"""The run's own training: resume or begin, train, evaluate what is held out."""

from gangline.errors import SIGTERM_CODE
from gangline.spec.gang import GangResult, JobResult
from gangline.train.context import Context
from gangline.train.loop.engine import Course
from gangline.train.loop.evaluation import evaluate
from gangline.train.loop.trainer import Trainer
from gangline.train.results import all_losses, thin, write_result
from gangline.train.roles.splits import fetch, open_split
from gangline.train.task import Task


def run(context: Context, task: Task) -> int:
    """Exit code of this rank; collective."""
    plan = context.plan
    fetch(context)
    trainer = Trainer(context, task, Course(seed=plan.seed, steps=plan.steps))
    engine = trainer.engine
    engine.resume()
    holdout = open_split(context, task, "holdout", seed=plan.seed)

    def evaluate_now(step: int) -> None:
        if plan.evaluate_every and step % plan.evaluate_every == 0:
            context.events.emit("evaluated", step=step, seed=plan.seed, metrics=evaluate(trainer, holdout))

    if engine.has_more:
        trainer.train(open_split(context, task, "train", seed=plan.seed), after_step=evaluate_now)
    engine.close()
    if engine.stopped:
        return SIGTERM_CODE
    step = engine.progress.step
    metrics = evaluate(trainer, holdout)
    context.events.emit("evaluated", step=step, seed=plan.seed, metrics=metrics)
    job = JobResult(seed=plan.seed, step=step, metrics=metrics, losses=thin(all_losses(context, trainer.course)))
    units = dict(getattr(task, "metric_units", {}))
    write_result(
        context,
        GangResult(role="train", final_step=step, checkpoint=engine.saves.last_key, jobs=(job,), metric_units=units),
    )
    return 0
