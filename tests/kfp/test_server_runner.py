"""A run on a pipelines server: a stub runs the tasks here as pods would, from what travels through the store."""

import re
import threading
from dataclasses import replace

import pytest
import yaml
from tests.cluster.fake.api import FakeApi
from tests.kfp import stub as pipelines
from tests.kfp.driving import story
from tests.kfp.pods import IMAGE, Pods, server_run
from tests.launch.kubernetes.cluster.test_workflow_defaults import RECORDED
from tests.line import repositories
from tests.line.records import driven

from gangline.errors import CancelledError, ConfigError, TrainingError
from gangline.kfp import client, server_runner
from gangline.kfp.compiler import compile_run
from gangline.kfp.server_runner import cancel_kfp_run
from gangline.line.record.store import RecordStore
from gangline.spec.config.site import KfpTable, Site
from gangline.spec.record import STAGES
from gangline.spec.run_flags import stage

pytestmark = pytest.mark.long

FAILS = "import sys\nsys.exit(7)\n"


def test_a_commit_goes_through_the_server_without_a_secret_and_the_record_leads_there_and_back(cluster, pods):
    cluster.environ["KFP_TOKEN"] = pods.token = "canary-token"
    cluster.site = replace(cluster.site, kfp=replace(cluster.site.kfp, token="secret:env:KFP_TOKEN"))
    record = server_run(cluster)
    assert record.run.verdict == "passed"
    assert cluster.seen.stages == list(STAGES)
    (row,) = pods.rows["runs"]
    assert record.links["kfp"] == f"http://ui.example/#/runs/details/{row['run_id']}"
    assert row["display_name"] == f"{record.commit.sha[:8]}-main-a1"
    assert pods.rows["experiments"][0]["display_name"] == "cheap/main"
    (version,) = pods.rows["pipeline_versions"]
    assert version["display_name"] == f"{record.commit.sha}-{record.inputs.line[:8]}"
    assert version["tags"]["commit"] == record.commit.sha
    (kept,) = (each for each in record.artifacts if each.kind == "pipeline")
    assert cluster.store.get(kept.key).data in pods.files[version["pipeline_version_id"]]
    assert compile_run(cluster.repo, record, site=cluster.site) == cluster.store.get(kept.key).data
    sent = repr(pods.rows) + repr(pods.files)
    assert "canary-token" not in sent
    assert "PRIVATE KEY" not in sent
    assert re.search(r"secret:k8s:gangline-line/sign-key", sent)


@pytest.mark.slow
def test_the_story_is_that_of_a_run_without_pipeline(cluster, tmp_path):
    there = story(server_run(cluster))
    for name in ("store", "gangs"):
        (tmp_path / name).rename(tmp_path / f"{name}-there")
    here = story(cluster.run())
    del there["links"]["kfp"]
    there["artifacts"] = [each for each in there["artifacts"] if each["kind"] != "pipeline"]
    for each in (there, here):  # a pod has other variables than this process
        each["events"] = [event for event in each["events"] if event["kind"] != "environment"]
    assert there == here


def test_a_program_that_fails_fails_the_pipeline_and_the_run_says_why(cluster, pods):
    repositories.commit(cluster.repo, {"answer.py": FAILS})
    with pytest.raises(TrainingError, match="code 7"):
        server_run(cluster)
    (record,) = cluster.records()
    assert (record.run.verdict, stage(record, "report").state) == ("failed", "done")
    assert pods.rows["runs"][0]["state"] == "FAILED"


@pytest.mark.row("C6")
def test_a_pod_that_is_lost_after_its_work_is_run_again_and_changes_nothing(cluster, pods):
    pods.lose = {"plan", "submit", "train", "publish"}
    record = server_run(cluster)
    assert record.run.verdict == "passed"
    assert [stage(record, name).tries for name in STAGES] == [1] * len(STAGES)


@pytest.mark.row("C6")
def test_a_driver_that_comes_back_joins_the_pipeline_and_trains_nothing_twice(cluster, pods, monkeypatch):
    def dies(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(server_runner, "_wait", dies)
        with pytest.raises(KeyboardInterrupt):
            server_run(cluster)
    record = server_run(cluster)
    assert record.run.verdict == "passed"
    assert len(pods.rows["runs"]) == 1
    assert stage(record, "train").tries == 1


@pytest.mark.slow
def test_a_pipeline_that_ends_without_a_word_leaves_the_run_open(cluster, pods):
    pods.work = lambda _: "FAILED"
    with pytest.raises(TrainingError, match=r"stage plan did not end, and the server has no log.*ended as FAILED"):
        server_run(cluster)
    pods.work = pods.take_through
    assert server_run(cluster).run.verdict == "passed"
    assert len(pods.rows["runs"]) == 2


def test_a_pipeline_whose_task_was_not_tried_again_says_so(cluster, pods, monkeypatch):
    api = FakeApi()
    api.server.add_namespace("kubeflow")
    api.create("/api/v1/namespaces/kubeflow/configmaps", yaml.safe_load(RECORDED.read_text()))
    monkeypatch.setattr(server_runner, "open_cluster", lambda *_: api)
    pods.work = lambda _: "FAILED"
    with pytest.raises(TrainingError, match=r"as FAILED \(a task that fails .* retryPolicy OnError: .*\) and the run"):
        server_run(cluster)
    api.server.denied.add(("get", "configmaps"))
    with pytest.raises(TrainingError, match=r"as FAILED and the run is open"):
        server_run(cluster)


def test_a_run_that_a_pipeline_left_open_says_which_stage_and_what_its_task_wrote_and_no_name_of_a_node(cluster, pods):
    def ends(row):
        row["run_details"] = {"task_details": [
            {"display_name": "root", "pod_name": "wf", "state": "FAILED", "child_tasks": [{"pod_name": "wf-7"}]},
            {"display_name": "executor", "pod_name": "wf-2", "state": "FAILED"},
            {"display_name": "plan", "pod_name": "wf-7", "state": "FAILED", "child_tasks": [{"pod_name": "wf-8"}]},
            {"display_name": "executor", "pod_name": "wf-8", "state": "FAILED", "child_tasks": [{"pod_name": "wf-9"}]},
            {"display_name": "executor(1)", "pod_name": "wf-9", "state": "FAILED"},
        ]}  # fmt: skip
        pods.logs = {
            "wf-2": "error: another task\n",
            "wf-9": "starts\nerror: the store\x1b[2J is away\nF1 launcher: exit 40\n",
        }
        return "FAILED"

    pods.work = ends
    with pytest.raises(TrainingError, match=r"stage plan did not end: the store \[2J is away; ") as raised:
        server_run(cluster)
    assert "executor" not in str(raised.value)
    assert "wf-" not in str(raised.value)


def test_a_task_that_kubeflows_driver_did_not_start_says_what_the_driver_wrote(cluster, pods):
    def ends(row):
        row["run_details"] = {"task_details": [
            {"display_name": "plan-driver", "pod_name": "wf", "state": "FAILED", "child_tasks": [{"pod_name": "wf-2"}]},
            {"display_name": "plan-driver(0)", "pod_name": "wf-2", "state": "FAILED"},
        ]}  # fmt: skip
        pods.logs = {
            "wf-2": "I1128 10:00:00.000000 1 main.go:90] input\nF1128 10:00:01.000000 1 main.go:127] no quota\n"
        }
        return "FAILED"

    pods.work = ends
    begun = r"stage plan did not start, as the pod of Kubeflow's own driver for it failed: "
    with pytest.raises(TrainingError, match=begun + r"no quota; the pipeline run ended"):
        server_run(cluster)


def test_a_driver_without_a_log_has_the_reason_that_the_server_gives(cluster, pods):
    task = {"display_name": "plan-driver", "pod_name": "wf-1", "state": "FAILED", "error": {"message": "pod deleted"}}
    ended = client._run({"run_id": "x", "state": "FAILED", "run_details": {"task_details": [task]}})
    found = server_runner.early_end_reason(server_runner.open_client(cluster.site, {}), driven(), ended)
    assert found.endswith("driver for it failed: pod deleted")


def test_a_stop_on_the_servers_page_is_no_failure(cluster, pods):
    repositories.commit(cluster.repo, {"answer.py": repositories.LONG_PROGRAM})
    pods.work = None
    failures = []

    def drive_it():
        try:
            server_run(cluster)
        except CancelledError as error:
            failures.append(str(error))

    driver = threading.Thread(target=drive_it)
    driver.start()
    pipelines.wait_until(lambda: pods.rows["runs"] and ("GET", "/runs/id-4") in pods.asked)
    pods.terminate(pods.rows["runs"][0])
    driver.join(60)
    assert pods.rows["runs"][0]["state"] == "FAILED"
    (failure,) = failures
    assert "its pipeline run was stopped on the server, which does not tell by whom; its gang may train on" in failure


def test_cancel_stops_the_pipeline_before_the_gang_and_leaves_nothing(cluster, pods):
    repositories.commit(cluster.repo, {"answer.py": repositories.LONG_PROGRAM})
    failures = []

    def drive_it():
        try:
            server_run(cluster)
        except CancelledError as error:
            failures.append(error)

    driver = threading.Thread(target=drive_it)
    driver.start()
    pipelines.wait_until(lambda: any(stage(each, "train").state == "running" for each in cluster.records()))
    run = cluster.records()[0].run.id
    record = cancel_kfp_run(cluster.repo, run, **cluster.where, reason="by hand")
    driver.join(60)
    assert record.run.verdict == "cancelled"
    assert "by hand" in record.run.reason
    assert len(failures) == 1
    order = [path for method, path in pods.asked if path.endswith(":terminate")]
    assert len(order) == 1
    again = cancel_kfp_run(cluster.repo, run, **cluster.where, reason="once more")
    assert again.run == record.run


@pytest.mark.row("A1")
def test_a_link_to_another_runs_pipeline_stops_nothing_there(cluster, pods):
    theirs = {"parameters": {"run": "dear-9f31c2a0-aaaaaa"}}
    pods.rows["runs"].append({"run_id": "theirs", "display_name": "x", "state": "RUNNING", "runtime_config": theirs})
    mine = replace(driven(), links={"kfp": "http://ui.example/#/runs/details/theirs"})
    RecordStore.of(cluster.store, mine, cluster.sealer).create(mine)
    record = cancel_kfp_run(cluster.repo, mine.run.id, **cluster.where, reason="by hand")
    assert record.run.verdict == "cancelled"
    assert [path for _, path in pods.asked if path.endswith(":terminate")] == []


def test_a_site_without_server_store_or_image_is_shown_what_to_set(workspace):
    for kfp, says in ((KfpTable(), r"kfp\.endpoint"), (KfpTable(endpoint="ftp://x"), "http://host:port")):
        workspace.site = Site(kfp=kfp)
        with pytest.raises(ConfigError, match=says):
            server_run(workspace)
    with pipelines.serving(Pods()) as url:
        workspace.site = Site(kfp=KfpTable(endpoint=url, image=IMAGE))
        with pytest.raises(ConfigError, match="s3://bucket/prefix"):
            server_run(workspace)
