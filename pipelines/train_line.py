"""One commit through the line, from plan to report. Resolve and build come before: compiling needs their image."""

from collections.abc import Sequence
from functools import partial

from components.choose_plan import plan
from components.evaluate_model import evaluate
from components.judge_gates import gate
from components.prove_plan import prove
from components.publish_model import publish
from components.start_gang import submit
from components.train_gang import train
from components.write_report import report
from kfp import dsl, kubernetes

USER = 65532
WEEK_SECONDS = 7 * 24 * 3600


def define(*, image: str, run_seconds: int, secrets: Sequence[str] = (), retries: int = 2):
    """The pipeline for tasks in `image`, which mount `secrets` and are stopped after `run_seconds` together."""
    at_work = partial(prepare, image=image, run_seconds=run_seconds, secrets=secrets, retries=retries)
    limits = dsl.PipelineConfig(
        ttl_seconds_after_finished=WEEK_SECONDS,
        ttl_seconds_after_success=WEEK_SECONDS,  # Kubeflow's defaults of these two come before the first
        ttl_seconds_after_failure=WEEK_SECONDS,
        active_deadline_seconds=run_seconds,
    )

    @dsl.pipeline(
        name="train-line",
        description="One commit of a model repository, from its plan to its report.",
        pipeline_config=limits,
    )
    def train_line(run: str, config: str):
        with dsl.ExitHandler(at_work(report(run=run, config=config)), name="line"):
            done = at_work(plan(run=run, config=config))
            for step in (submit, train, evaluate, gate, prove, publish):
                done = at_work(step(run=done.outputs["run"], config=config))

    return train_line


def prepare(
    task: dsl.PipelineTask, *, image: str, run_seconds: int, secrets: Sequence[str], retries: int
) -> dsl.PipelineTask:
    """A stage owns its key, so nothing is cached; a failed pod is tried again and adopts what it left.

    Without `backoff_max_duration`, an hour after its first start no task is tried again, and a second try is stopped.
    """
    task.set_container_image(image).set_caching_options(False)
    task.set_retry(retries, backoff_duration="30s", backoff_max_duration=f"{run_seconds}s")
    task.set_cpu_request("250m").set_cpu_limit("2").set_memory_request("512Mi").set_memory_limit("2Gi")
    kubernetes.set_security_context(task, run_as_user=USER, run_as_group=USER, run_as_non_root=True)
    for name in secrets:
        kubernetes.use_secret_as_volume(task, secret_name=name, mount_path=f"/var/run/gangline/secrets/{name}")
    return task
