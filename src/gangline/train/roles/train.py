"""Role train: resume or start the run's own training, then evaluate the held-out data."""

from collections.abc import Callable

from gangline.errors import SIGTERM_CODE
from gangline.spec.gang.status import GangResult, JobResult
from gangline.train.account.results import losses_of, write_result
from gangline.train.live.replica import Replica
from gangline.train.loop.engine import TrainingEngine, TrainingJob
from gangline.train.loop.evaluation import evaluate
from gangline.train.loop.trainer import Trainer
from gangline.train.parallel.local_sgd import is_due
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.data_splits import fetch_data, open_split
from gangline.train.task import Task, export_names_of


def run(context: RankContext, task: Task) -> int:
    """Exit code of this rank; collective."""
    if context.plan.federation is not None:
        from gangline.train.roles import federated  # numpy and masks, which few runs need

        return federated.run(context, task)
    if context.plan.recovery.mode == "restart":
        return _train(context, task, TrainingEngine.resume)
    replica = Replica(context)
    return replica.train(lambda: _train(context, task, replica.begin))


def _train(context: RankContext, task: Task, begin: Callable[[TrainingEngine], object]) -> int:
    """Build the training and run it to its end; `begin` restores the state that it starts from."""
    plan = context.plan
    names = export_names_of(task)
    fetch_data(context)
    trainer = Trainer(context, task, TrainingJob(seed=plan.seed, steps=plan.last_step))
    engine = trainer.engine
    begin(engine)
    holdout = open_split(context, task, "holdout", seed=plan.seed)

    def evaluate_now(step: int) -> None:
        if plan.evaluate_every and is_due(step, every=plan.evaluate_every, outer=plan.outer_interval):
            context.events.emit("evaluated", step=step, seed=plan.seed, metrics=evaluate(trainer, holdout))

    if engine.has_more:
        trainer.train(open_split(context, task, "train", seed=plan.seed), after_step=evaluate_now)
    worker = engine.worker
    if worker is not None and worker.saves:
        engine.progress.step = (
            plan.last_step // plan.num_workers
        )  # what all workers have trained is the run's last step
        engine.saves.save(engine.current_progress(), wait=True)
    engine.close()
    if engine.stopped:
        return SIGTERM_CODE
    if worker is not None and not worker.saves:
        return 0  # another worker of the run has saved
    step = engine.progress.step
    metrics = evaluate(trainer, holdout)
    context.events.emit("evaluated", step=step, seed=plan.seed, metrics=metrics)
    losses = losses_of(context.metrics, seed=plan.seed, job=None)
    job = JobResult(seed=plan.seed, step=step, metrics=metrics, losses=losses)
    units = dict(getattr(task, "metric_units", {}))
    result = GangResult(
        role="train", final_step=step, checkpoint=engine.saves.last_key, jobs=(job,), metric_units=units,
        export_names=names,
    )  # fmt: skip
    write_result(context.metrics, result)
    if worker is not None:
        worker.finish(result)
    return 0
