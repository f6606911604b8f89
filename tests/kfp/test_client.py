"""The client, on a server of its own and, where GANGLINE_TEST_KFP_ENDPOINT names one, on that server."""

import os
import secrets

import pytest
from tests.kfp.stub import Stub, serving, wait_until

from gangline.errors import ConfigError, StorageError, UsageError
from gangline.kfp.client import KfpClient, KfpHttp, PipelineVersion
from gangline.kfp.compiler import compile_line, find_root

ENDPOINT = "GANGLINE_TEST_KFP_ENDPOINT"
IMAGE = "registry.example/gangline/line@sha256:" + "a1" * 32


@pytest.fixture(scope="module")
def pipeline():
    return compile_line(find_root(), IMAGE, environ=os.environ)


@pytest.fixture
def stub():
    return Stub()


@pytest.fixture(params=["stub", "server"])
def client(request):
    if request.param == "server":
        if not os.environ.get(ENDPOINT):
            pytest.skip(f"{ENDPOINT} names no pipelines server")
        yield KfpClient(KfpHttp(os.environ[ENDPOINT], lambda: os.environ.get("GANGLINE_TEST_KFP_TOKEN")))
        return
    with serving(request.getfixturevalue("stub")) as url:
        yield KfpClient(KfpHttp(url, lambda: None, deadline_seconds=10, request_seconds=5))


@pytest.fixture
def erring(stub):
    with serving(stub) as url:
        yield KfpClient(KfpHttp(url, lambda: None, deadline_seconds=5, request_seconds=5))


@pytest.fixture
def place(client, pipeline):
    """Experiment and version of their own."""
    word = secrets.token_hex(4)
    version = client.version(f"cheap-{word}", f"{'9f' * 20}-{word}", pipeline, tags={"commit": "9f" * 20})
    return {"experiment": client.experiment(f"cheap-{word}/main"), "version": version, "config": "{}"}


def started(client, place, run="cheap-9f31c2a0-k7q2mx"):
    return client.start("9f31c2a0-main-a1", run=run, **place)


def test_experiment_and_version_are_found_by_name_the_second_time(client, place, pipeline):
    word = secrets.token_hex(4)
    assert client.experiment(f"{word}/main") == client.experiment(f"{word}/main")
    first = client.version(word, f"{word}-1", pipeline, tags={})
    assert client.version(word, f"{word}-1", pipeline, tags={}) == first
    second = client.version(word, f"{word}-2", pipeline, tags={})
    assert (second.pipeline_id, second.id != first.id) == (first.pipeline_id, True)


def test_a_run_at_work_is_joined_and_never_started_twice(client, place):
    first = started(client, place)
    assert started(client, place) == first
    stands = client.run(first)
    assert (stands.run, stands.is_final) == ("cheap-9f31c2a0-k7q2mx", False)
    client.terminate(first)


def test_another_line_of_the_commit_is_another_run_of_the_same_name(client, place):
    first = started(client, place)
    other = started(client, place, run="cheap-9f31c2a0-zzzzzz")
    assert other != first
    for each in (first, other):
        client.terminate(each)


def test_a_stopped_run_ends_and_the_next_start_is_a_new_one(client, place):
    first = started(client, place)
    client.terminate(first)
    client.terminate(first)
    wait_until(lambda: client.run(first).is_final)
    assert client.run(first).state in {"FAILED", "CANCELED"}
    second = started(client, place)
    assert second != first
    client.terminate(second)


def test_what_is_not_there_is_said(client):
    with pytest.raises(UsageError, match="there is none"):
        client.run("00000000-0000-0000-0000-000000000000")


@pytest.mark.parametrize("what", ["lost", 429, 503, 500])
@pytest.mark.parametrize(("method", "end"), [("POST", "/runs"), ("GET", "/runs"), ("POST", "/experiments")])
def test_an_answer_that_does_not_come_starts_nothing_twice(erring, stub, what, method, end):
    stub.fault(method, end, what, times=2)
    experiment = erring.experiment("cheap/main")
    place = {
        "experiment": experiment,
        "version": PipelineVersion(pipeline_id="p", id="v"),
        "config": "{}",
    }
    assert started(erring, place) == stub.rows["runs"][0]["run_id"]
    assert (len(stub.rows["experiments"]), len(stub.rows["runs"])) == (1, 1)
    assert not stub.faults or what == "lost"


def test_an_upload_whose_answer_is_lost_is_one_version(erring, stub, pipeline):
    stub.fault("POST", "/upload_version", "lost")
    version = erring.version("cheap", "9f-1", pipeline, tags={"commit": "9f"})
    assert [row["pipeline_version_id"] for row in stub.rows["pipeline_versions"]] == [version.id]
    assert stub.rows["pipeline_versions"][0]["tags"]["commit"] == "9f"
    assert pipeline in stub.files[version.id]


def test_another_content_of_a_name_is_another_version(client, pipeline):
    word = secrets.token_hex(4)
    first = client.version(word, f"{word}-1", pipeline, tags={})
    other = client.version(word, f"{word}-1", pipeline.replace(b"a1" * 32, b"b2" * 32), tags={})
    assert other.id != first.id
    assert client.version(word, f"{word}-1", pipeline, tags={}) == first


def test_of_twins_everybody_takes_the_oldest(erring, stub):
    for _ in range(5):
        stub.add("experiments", {"display_name": "cheap/main"})
    assert erring.experiment("cheap/main") == "id-1"
    for experiment in ("id-9", "id-1", "id-1", "id-1"):
        run = {"display_name": "9f31c2a0-main-a1", "experiment_id": experiment}
        stub.add("runs", run | {"runtime_config": {"parameters": {"run": "cheap-9f31c2a0-k7q2mx"}}})
    found = erring.at_work("9f31c2a0-main-a1", experiment="id-1", run="cheap-9f31c2a0-k7q2mx")
    assert found.id == "id-7"


def test_states_that_the_server_leaves_out_are_unknown_and_no_end(erring, stub):
    row = stub.add("runs", {"display_name": "x"})
    row["run_details"] = {"task_details": [{"state": "FAILED"}, {"state": "FAILED", "display_name": "train"}, {}]}
    for state in (None, "", "SOMETHING_NEW"):
        row["state"] = state
        stands = erring.run(row["run_id"])
        assert (stands.state, stands.is_final) == ("unknown", False)
    assert [each.name for each in stands.failed] == ["", "train"]


def test_the_token_is_asked_for_at_every_request(stub):
    words = iter(["old", "new", "new"])
    with serving(stub) as url:
        client = KfpClient(KfpHttp(url, lambda: next(words)))
        stub.token = "new"
        with pytest.raises(ConfigError, match=r"kfp\.token"):
            client.check()
        client.check()


@pytest.mark.parametrize("words", ["html", "nested"])
def test_another_server_at_that_address_is_said_so(erring, stub, words):
    stub.fault("GET", "/healthz", words)
    with pytest.raises(ConfigError, match=r"kfp\.endpoint"):
        erring.check()


@pytest.mark.parametrize("listed", ["/experiments", "/runs"])
def test_a_page_is_not_an_empty_list(erring, stub, listed):
    """A login proxy answers 200 with HTML: what exists behind it must not be created again."""
    place = {"version": PipelineVersion(pipeline_id="p", id="v"), "config": "{}"}
    place["experiment"] = erring.experiment("cheap/main")
    started(erring, place)
    stub.fault("GET", listed, "html")
    with pytest.raises(ConfigError, match=r"wanted JSON of a pipelines server"):
        erring.experiment("cheap/main") if listed == "/experiments" else started(erring, place)
    assert (len(stub.rows["experiments"]), len(stub.rows["runs"])) == (1, 1)


def test_a_server_that_is_away_is_waited_for_in_vain_until_the_deadline():
    client = KfpClient(KfpHttp("http://127.0.0.1:9", lambda: None, deadline_seconds=0.3))
    with pytest.raises(StorageError, match="is the server up"):
        client.check()
