"""Role prove: the checkpoint of a training is loaded under another plan and compared, and its first steps are repeated.

Full tensors of model and optimizer under this plan are compared with the bytes in the store, by SHA-256; then each
training job runs from step 0, so that the losses of both plans can be compared.
"""

from gangline.checkpoint.format.stored_tensors import compare, stored_digests
from gangline.errors import SIGTERM_CODE
from gangline.spec.gang.status import GangResult, JobResult, TensorDigests
from gangline.spec.plan import Job
from gangline.train.account.results import write_result
from gangline.train.loop.engine import TrainingJob
from gangline.train.loop.trainer import Trainer
from gangline.train.roles.evaluate import run_job
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.data_splits import fetch_data, open_split
from gangline.train.task import Task

DIGEST_SECONDS = 3600.0


def run(context: RankContext, task: Task) -> int:
    """Exit code of this rank; collective."""
    fetch_data(context)
    digests: TensorDigests | None = None
    results: list[JobResult] = []
    for number, job in enumerate(context.plan.jobs):
        if job.checkpoint is not None and digests is None:
            digests = _compare(context, task, job, job.checkpoint)
        if job.train:
            replay = Job(seed=job.seed, train=True, steps=job.steps)
            result = run_job(context, task, replay, number, open_split(context, task, "holdout", seed=job.seed))
            if result is None:
                return SIGTERM_CODE
            results.append(result)
    final = max((result.step for result in results), default=0)
    write_result(context.metrics, GangResult(role="prove", final_step=final, jobs=tuple(results), digests=digests))
    return 0


def _compare(context: RankContext, task: Task, job: Job, checkpoint: str) -> TensorDigests:
    """Compare digests; only rank 0 reads the store, and its result counts."""
    trainer = Trainer(context, task, TrainingJob(seed=job.seed, steps=0, number=0))
    trainer.engine.resume(at=checkpoint)
    with context.during("evaluate", at_most_seconds=DIGEST_SECONDS):
        opened = trainer.engine.saves.digests()
        assert context.store is not None, "a gang has a store"
        if context.rank != 0:
            return TensorDigests(checkpoint=checkpoint, total=0, equal=0)
        stored = stored_digests(context.store, checkpoint, context.key, optimizer=True)
        return compare(opened, stored, checkpoint=checkpoint)
