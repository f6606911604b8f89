"""A pod that cannot start, is taken, or answers nothing: a plain error of the right class, and nothing is left."""

import json
import threading
import time

import pytest
from tests.contracts.launcher.gangs import poll
from tests.contracts.runner.stands import RUN, FakePodStand, closing, objects_left
from tests.contracts.runner.test_contract import job

from gangline.errors import CapacityError, ConfigError, IntegrityError, StorageError
from gangline.launch.kubernetes import module_runner
from gangline.launch.kubernetes.client.api import ApiUnavailable
from gangline.launch.kubernetes.lifecycle.cancel import cancel_module_jobs
from gangline.launch.sandbox.module_runner import ModuleJob

pytestmark = [pytest.mark.row("P10"), pytest.mark.timeout(120)]


@pytest.fixture
def stand(tmp_path):
    with closing(FakePodStand(tmp_path)) as made:
        yield made
        assert made.leftovers() == []


@pytest.fixture
def idle(stand):
    """Its kubelet starts nothing."""
    stand.pods.runs = False
    return stand


def meanwhile(stand, change):
    """`change` the pod, once there is one."""

    def work() -> None:
        poll(stand.pods.names)
        change(stand.pods.names()[0])

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_url_and_secret_stand_in_no_object_that_others_read(stand):
    stand.runner.run(job("print(1)"))
    (pod,) = stand.pods.pods
    (secret,) = stand.pods.secrets
    assert "http://" in secret["bundle"]
    bundle = json.loads(secret["bundle"])
    assert bundle["url"] not in json.dumps(pod)
    assert bundle["sha256"] not in json.dumps(pod)


def test_pod_that_finds_no_server_is_given_up_with_the_schedulers_words(idle, monkeypatch):
    monkeypatch.setattr(module_runner, "START_SECONDS", 1.5)
    say = "0/3 nodes are available: 3 Insufficient cpu."
    meanwhile(idle, lambda name: idle.pods.hands.unschedulable(name, say, namespace="gangs"))
    with pytest.raises(CapacityError, match=r"did not start in 2 s: .*cpu"):
        idle.runner.run(job("print(1)"))


def test_image_that_is_nowhere_is_an_error_of_the_site(idle):
    def wait(name) -> None:
        idle.pods.hands.bind(name, namespace="gangs")
        waits = {"waiting": {"reason": "InvalidImageName", "message": 'couldn\'t parse image name "x"'}}
        idle.pods.change(
            name, lambda pod: pod["status"].update(initContainerStatuses=[{"name": "fetch", "state": waits}])
        )

    meanwhile(idle, wait)
    with pytest.raises(ConfigError, match=r"the pod for model code cannot start: image .*: invalid image name"):
        idle.runner.run(job("print(1)"))


def test_without_an_image_nothing_is_asked_of_the_cluster(stand):
    runner = type(stand.runner)(**{**vars(stand.runner), "whose": stand.without_image})
    with pytest.raises(ConfigError, match=r"pods need an image; set registry.base"):
        runner.run(job("print(1)"))
    assert not stand.api.calls


def test_server_that_is_away_is_a_storage_error(stand):
    def away(request, proceed):
        raise ApiUnavailable("no answer")

    stand.api.hooks.append(away)
    with pytest.raises(StorageError, match="no answer"):
        stand.runner.run(job("print(1)"))
    stand.api.hooks.clear()


def test_server_that_goes_away_while_it_runs_leaves_a_job_that_ends_by_itself(idle):
    def away(request, proceed):
        raise ApiUnavailable("no answer")

    meanwhile(idle, lambda _: idle.api.hooks.append(away))
    with pytest.raises(StorageError, match="no answer"):
        idle.runner.run(job("print(1)"))
    assert idle.leftovers() != []
    idle.api.hooks.clear()
    (left,) = idle.api.items("/apis/batch/v1/namespaces/gangs/jobs")[0]
    assert left["spec"]["activeDeadlineSeconds"]
    idle.api.delete(f"/apis/batch/v1/namespaces/gangs/jobs/{left['metadata']['name']}", propagation="Foreground")
    poll(lambda: objects_left(idle.api) == [])


def test_job_of_a_driver_that_was_killed_is_cancelled_with_its_run_and_with_no_other(idle):
    def away(request, proceed):
        raise ApiUnavailable("no answer")

    meanwhile(idle, lambda _: idle.api.hooks.append(away))
    with pytest.raises(StorageError, match="no answer"):
        idle.runner.run(job("print(1)"))
    idle.api.hooks.clear()
    assert objects_left(idle.api) != []
    cancel_module_jobs(idle.api, "demo-0a1b2c3d-zzzzzz")
    assert idle.api.items("/apis/batch/v1/namespaces/gangs/jobs")[0] != []
    cancel_module_jobs(idle.api, RUN)
    assert idle.api.items("/api/v1/namespaces/gangs/pods")[0] == []
    poll(lambda: objects_left(idle.api) == [])
    cancel_module_jobs(idle.api, RUN)


def test_pod_that_is_taken_from_its_server_is_to_be_run_again(idle):
    def evict(name) -> None:
        idle.pods.change(
            name,
            lambda pod: pod["status"].update(phase="Failed", reason="Evicted", message="The node was low on memory."),
        )

    meanwhile(idle, evict)
    with pytest.raises(StorageError, match=r"evicted from its server: Evicted The node was low on memory.; run again"):
        idle.runner.run(job("print(1)"))


def test_job_that_is_deleted_by_somebody_is_reported(idle):
    def delete(_) -> None:
        (found,) = idle.api.items("/apis/batch/v1/namespaces/gangs/jobs")[0]
        idle.api.delete(f"/apis/batch/v1/namespaces/gangs/jobs/{found['metadata']['name']}", propagation="Foreground")

    meanwhile(idle, delete)
    with pytest.raises(StorageError, match=r"was deleted.*run again"):
        idle.runner.run(job("print(1)"))


@pytest.mark.parametrize(("swap", "error", "says"), [
    (lambda store, key: store.put(key, b"another's"), IntegrityError, "wanted digest .* it was changed"),
    (lambda store, key: store.delete(key), StorageError, "the store answered 404"),
])  # fmt: skip
def test_bundle_that_was_changed_or_lost_never_runs(stand, swap, error, says):
    stand.pods.before = lambda: swap(stand.store, stand.store.list("once/")[0].key)
    with pytest.raises(error, match=f"could not start: .*{says}"):
        stand.runner.run(job("print(1)"))


def test_pod_out_of_memory_says_what_to_set(idle):
    def end(name) -> None:
        idle.pods.hands.run(name, namespace="gangs")
        idle.pods.hands.end(name, 137, reason="OOMKilled", namespace="gangs")

    meanwhile(idle, end)
    done = idle.runner.run(job("print(1)"))
    assert done.exit_code == 137
    assert done.output_tail == "its pod ran out of memory, 268 MB; pod.memory_bytes in site.toml gives it more"


def test_answer_that_is_not_there_is_no_success(idle, monkeypatch):
    monkeypatch.setattr(module_runner, "_READ_SECONDS", 0.01)

    def end(name) -> None:
        idle.pods.hands.run(name, namespace="gangs")
        idle.pods.hands.end(name, 0, namespace="gangs")

    meanwhile(idle, end)
    done = idle.runner.run(job("print(1)"))
    assert (done.exit_code, done.output_tail) == (1, "its pod ended with code 0 and no result: no message")


def test_log_that_never_ends_is_not_read_to_its_end(stand):
    noise = "x" * 10_000
    program = f"""
with open(f"/proc/{{__import__('os').getppid()}}/fd/1", "w") as log:
    for _ in range(2_000):
        print("{noise}", file=log)
"""
    began = time.monotonic()
    done = stand.runner.run(job(program))
    assert (done.exit_code, done.stdout) == (1, b""), "an answer behind 20 MB of noise is not looked for"
    assert time.monotonic() - began < 60


def test_links_in_a_folder_do_not_leave_this_machine(stand, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "weights").symlink_to("/etc/shadow")
    with pytest.raises(IntegrityError, match="wanted a plain file or a folder for a pod, found a link"):
        stand.runner.run(ModuleJob(module="start", files={"model": folder}, seconds=5.0, trust="own"))
