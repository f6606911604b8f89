"""What the API answers: records, lists, points, files, orders, tokens."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256

import pytest
from tests.serve.world import METRICS, record_of, run_id

from gangline.line.record.runs import find_run
from gangline.line.results.loss_curve import by_step
from gangline.serve.api import metrics
from gangline.serve.api.artifacts import wanted_range
from gangline.serve.api.metrics import thinned
from gangline.serve.runs.index_row import row_of
from gangline.serve.web.responses import RequestRefused
from gangline.spec.program_files import OutputFile
from gangline.spec.record import Artifact, OutputsInfo, gang_prefix


def test_record_is_the_bytes_of_the_store_and_its_tag_is_its_seq(world):
    record = find_run(world.context.store, world.run("alpha"))
    with world.client(("alpha", "reader")) as client:
        answer = client.get(f"/api/v1/runs/{record.run.id}")
        assert answer.content == record.to_json()
        assert answer.headers["etag"] == f'"{record.seq}"'
        again = client.get(f"/api/v1/runs/{record.run.id}", headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_pages_of_the_list_hold_every_run_once_newest_first(world):
    made = record_of(world.context, "alpha", "passed")
    rows = [
        row_of(
            replace(made, run=replace(made.run, id=f"alpha-{n:08x}-abcdef", created=f"2026-03-02T09:{n // 3:02}:00Z"))
        )
        for n in range(40)
    ]
    world.context.database.runs.put(rows)
    with world.client(("alpha", "reader")) as client:
        seen, before = [], None
        while True:
            page = client.get("/api/v1/runs", params={"limit": 7} | ({"before": before} if before else {})).json()
            seen += page["runs"]
            before = page["next"]
            if before is None:
                break
    names = [row["run"] for row in seen]
    assert len(names) == len(set(names)) == 43
    assert [row["created"] for row in seen] == sorted((row["created"] for row in seen), reverse=True)


@pytest.mark.parametrize(
    "query", ["before=x", "before=W10", "before=WzEsMl0", "limit=0", "limit=201", "verdict=great", "commit=XYZ",
              "pull_request=0", "branch=a%00b", "text=%1b%5b31m", "project=../etc"],
)  # fmt: skip
def test_list_refuses_what_it_does_not_understand_and_says_where(world, query):
    with world.client() as client:
        answer = client.get(f"/api/v1/runs?{query}")
    assert answer.status_code == 422
    assert query.split("=", 1)[0] in answer.json()["detail"]


@pytest.mark.row("I3")
def test_retried_start_is_one_order_even_when_all_retries_come_at_once(world):
    def start(_):
        with world.client(("alpha", "runner")) as client:
            return client.post(
                "/api/v1/runs", json={"project": "alpha", "branch": "main"}, headers={"Idempotency-Key": "push-17-a"}
            )

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(start, range(16)))
    assert {each.status_code for each in answers} == {202}
    assert len({each.json()["id"] for each in answers}) == 1
    assert sum(world.context.database.orders.counts().values()) == 1


def test_key_of_one_start_is_not_taken_for_another(world):
    with world.client(("alpha", "runner")) as client, world.client() as admin:

        def start(who, **wanted):
            return who.post("/api/v1/runs", json={"branch": "main"} | wanted, headers={"Idempotency-Key": "one-key-1"})

        assert start(client, project="alpha").status_code == 202
        assert start(client, project="alpha", branch="other").status_code == 409
        assert start(admin, project="alpha", branch="other").status_code == 202  # keys are the caller's own


@pytest.mark.parametrize(
    "wanted",
    [
        {"branch": "--upload-pack=touch"}, {"branch": "a..b"}, {"branch": "HEAD"}, {"branch": "a b"}, {"branch": ""},
        {"branch": "main", "commit": "HEAD"}, {"branch": "main", "overrides": ["train.seed"]},
        {"branch": "main", "overrides": ["x=1"] * 40}, {"branch": "main", "unknown": 1}, {"branch": "x" * 1001},
        {"branch": "main", "overrides": ["a.b=c\nd"]},
    ],
    ids=str,
)  # fmt: skip
def test_start_that_git_or_a_line_could_misread_is_refused(world, wanted):
    with world.client() as client:
        answer = client.post("/api/v1/runs", json={"project": "alpha"} | wanted)
    assert answer.status_code == 422
    assert world.context.database.orders.counts() == {} or sum(world.context.database.orders.counts().values()) == 0


def test_start_knows_forge_and_repository_of_a_project(world):
    with world.client() as client:
        order = client.post("/api/v1/runs", json={"project": "beta", "branch": "main", "again": True}).json()
        assert (order["forge"], order["repository"], order["ref"]) == ("ours", "team/beta", "refs/heads/main")
        assert client.get(f"/api/v1/orders/{order['id']}").json() == order
        assert [each["id"] for each in client.get("/api/v1/orders").json()["orders"]] == [order["id"]]


def test_cancel_is_written_before_it_is_answered_and_done_soon_after(world):
    run = world.run("alpha", "open")
    with world.client(("alpha", "runner")) as client:
        answer = client.post(f"/api/v1/runs/{run}/cancel", json={"reason": "a typo"})
        assert answer.status_code == 202
        assert answer.json()["cancel_requested"] == "cancelled by runner of alpha: a typo"
        deadline = time.monotonic() + 20
        while (state := client.get(f"/api/v1/runs/{run}").json()["run"])["state"] == "open":
            assert time.monotonic() < deadline, state
            time.sleep(0.05)
        assert state["verdict"] == "cancelled"
        assert client.post(f"/api/v1/runs/{run}/cancel").json()["state"] == "ended"


def test_approval_is_for_forks_that_are_open(world):
    with world.client(("alpha", "maintainer")) as client:
        fork = client.post(f"/api/v1/runs/{world.run('alpha', 'fork')}/approve")
        assert fork.status_code == 200
        assert fork.json()["approved"].startswith("maintainer of alpha, ")
        own = client.post(f"/api/v1/runs/{world.run('alpha', 'open')}/approve")
        assert (own.status_code, "nothing to approve" in own.text) == (409, True)


def test_metrics_are_means_of_equal_shares(world):
    with world.client(("alpha", "reader")) as client:
        path = f"/api/v1/runs/{world.run('alpha')}/metrics"
        points = client.get(path, params={"max_points": 10}).json()
        assert points["steps"] == list(range(10, 101, 10))
        assert points["values"]["loss"][0] == pytest.approx(sum(round(10 / n, 3) for n in range(1, 11)) / 10)
        assert len(client.get(path).json()["steps"]) == points["of"] == 100
        assert client.get(path, params={"name": "nothing"}).json()["values"] == {}


def test_metrics_of_junk_are_left_out_and_too_many_are_refused(world, monkeypatch):
    run = world.run("alpha")
    prefix, path = world.context.database.runs.get(run).prefix, f"/api/v1/runs/{run}/metrics"
    key = f"{gang_prefix(prefix)}/metrics.jsonl"
    junk = (b"[" * 100_000, b"9" * 5000, b'{"step": ' + b"9" * 400 + b"}", b'{"step": 1, "loss": {}}', b"x" * 2_000_000)
    world.context.store.put(key, b"\n".join((*junk, b'{"step": 2, "loss": 1.5}')))
    with world.client(("alpha", "reader")) as client:
        assert client.get(path).json() == {"run": run, "steps": [1, 2], "values": {"loss": [None, 1.5]}, "of": 2}
        monkeypatch.setattr(metrics, "MOST_STEPS", 1)
        assert client.get(path).status_code == 413
        monkeypatch.setattr(metrics, "MOST_BYTES", 1000)
        assert client.get(path).status_code == 413


def test_points_that_are_not_finite_are_gaps():
    losses = (float("nan"), None, 1e400, True, 2.0)
    rows = by_step({"step": step, "loss": loss} for step, loss in enumerate(losses, 1))
    assert thinned(rows, max_points=5) == ([1, 2, 3, 4, 5], {"loss": [None, None, None, None, 2.0]})
    assert thinned(by_step([]), max_points=5) == ([], {})


def test_artifact_comes_whole_or_by_range_with_its_digest(world):
    path = f"/api/v1/runs/{world.run('alpha')}/artifacts/metrics"
    with world.client(("alpha", "reader")) as client:
        whole = client.get(path)
        assert whole.content == METRICS
        assert whole.headers["etag"] == f'"{sha256(METRICS).hexdigest()}"'
        part = client.get(path, headers={"Range": "bytes=10-19"})
        assert (part.status_code, part.content) == (206, METRICS[10:20])
        assert part.headers["content-range"] == f"bytes 10-19/{len(METRICS)}"
        assert client.get(path, headers={"Range": "bytes=-5"}).content == METRICS[-5:]
        assert client.get(path, headers={"Range": f"bytes={len(METRICS)}-"}).status_code == 416
        assert client.get(path, params={"sha256": "000000"}).status_code == 404


def test_an_output_comes_by_its_digest_and_no_other_file_of_the_folder(world):
    record, store = find_run(world.context.store, world.run("alpha")), world.context.store
    digest, key = sha256(b"weights").hexdigest(), f"{record.gang_prefix}/outputs.json"
    file = OutputFile(path="out/model.pt", size_bytes=7, sha256=digest)
    outputs = OutputsInfo(key=key, num_files=1, size_bytes=7, files=(file,))
    store.put(f"{record.gang_prefix}/outputs/{digest}", b"weights")
    store.put(f"{record.gang_prefix}/outputs/{'a' * 64}", b"not listed")
    store.put(f"{record.prefix}/record.json", replace(record, outputs=outputs).to_json())
    path = f"/api/v1/runs/{record.run.id}/artifacts/output"
    with world.client(("alpha", "reader")) as client:
        assert client.get(path, params={"sha256": digest[:12]}).content == b"weights"
        assert client.get(path, params={"sha256": "a" * 64}).status_code == 404


@pytest.mark.parametrize(
    ("text", "found"),
    [(None, (0, 10)), ("bytes=0-", (0, 10)), ("bytes=2-4", (2, 5)), ("bytes=2-999", (2, 10)), ("bytes=-3", (7, 10)),
     ("bytes=-99", (0, 10)), ("items=1-2", (0, 10)), ("bytes=1-2,4-5", (0, 10))],
)  # fmt: skip
def test_ranges_are_read_as_the_standard_says(text, found):
    assert wanted_range(text, 10) == found


@pytest.mark.parametrize("text", ["bytes=10-", "bytes=5-4", "bytes=-0"])
def test_range_outside_the_file_is_refused(text):
    with pytest.raises(RequestRefused) as error:
        wanted_range(text, 10)
    assert error.value.status == 416


@pytest.mark.parametrize(
    "key", ["runs/beta/x/y/record.json", "models/alpha/1.json", "blobs/sha256/" + "0" * 64, "{own}/../../secret"]
)
def test_record_that_names_a_file_of_others_gets_none(world, key):
    record = find_run(world.context.store, world.run("alpha"))
    theirs = Artifact(
        kind="model", key=key.format(own=record.prefix), media_type="text/plain", size_bytes=3, sha256="f" * 64
    )
    world.context.store.put(f"{record.prefix}/record.json", replace(record, artifacts=(theirs,)).to_json())
    if ".." not in key:
        world.context.store.put(key, b"not yours")
    with world.client(("alpha", "reader")) as client:
        answer = client.get(f"/api/v1/runs/{record.run.id}/artifacts/model")
    assert answer.status_code == 404
    assert "not yours" not in answer.text


def test_logs_come_from_the_store_where_this_machine_has_no_gang(world):
    record = find_run(world.context.store, world.run("alpha"))
    world.context.store.put(f"{record.gang_prefix}/logs/1.log", b"one\n\x1b[31mtwo\n")
    with world.client(("alpha", "reader")) as client:
        path = f"/api/v1/runs/{record.run.id}/logs"
        lines = [json.loads(line) for line in client.get(path, params={"rank": 1}).text.splitlines()]
        assert lines == [{"rank": 1, "text": text, "source": "store"} for text in ("one", "\x1b[31mtwo")]
        assert client.get(path, params={"rank": 1, "tail": 1}).text.count("\n") == 1
        shown = client.get(path, params={"rank": 1}, headers={"Accept": "text/html,*/*"})
        assert (shown.headers["content-type"], shown.text) == (
            "text/plain; charset=utf-8",
            "r01│ one\nr01│ two\n",
        )
        assert client.get(path, params={"since": "yesterday"}).status_code == 422
        assert client.get(f"/api/v1/runs/{world.run('alpha', 'open')}/logs").status_code == 409


def test_token_is_shown_once_and_kept_as_its_digest(world):
    with world.client() as client:
        made = client.post("/api/v1/tokens", json={"name": "ci", "roles": {"alpha": "runner"}, "seconds": 60}).json()
        assert made["token"].startswith("gl_")
        list_refused = client.get("/api/v1/tokens").text
        assert made["token"] not in list_refused
        assert made["digest"] in list_refused
        assert client.delete("/api/v1/tokens/00000000").status_code == 404
    database = (world.context.home / "serve.db").read_bytes() + (world.context.home / "serve.db-wal").read_bytes()
    assert made["token"].encode() not in database


def test_events_say_the_state_of_a_run_and_resume_after_what_was_seen(world):
    run = world.run("alpha")
    with world.client(("alpha", "reader")) as client:
        text = client.get(f"/api/v1/runs/{run}/events").text
        assert text.startswith("retry: 3000\n\nevent: record\ndata: ")
        assert text.count("\nid: 31\n") == 1
        assert text.count("event: ") == 2
        assert "event: end" in text
        resumed = client.get(f"/api/v1/runs/{run}/events", headers={"Last-Event-ID": "31"}).text
        assert "event: record" not in resumed
        assert client.get(f"/api/v1/runs/{run}/events", headers={"Last-Event-ID": "x"}).status_code == 200


def test_watchers_of_one_run_share_one_watch_and_see_its_end(world):
    run = world.run("beta", "open")
    watchers = world.app.state.service.watchers
    with world.client(("beta", "runner")) as client:
        path = f"/api/v1/runs/{run}/events"
        with client.stream("GET", path) as one, client.stream("GET", path) as two:
            lines = [each.iter_lines() for each in (one, two)]
            for each in lines:
                assert any(line.startswith("event: record") for line in each)
            assert len(watchers) == 1
            client.post(f"/api/v1/runs/{run}/cancel")
            for each in lines:
                assert any('"verdict": "cancelled"' in line for line in each)


def test_run_that_the_index_does_not_know_yet_is_found_in_the_store(world):
    record = record_of(world.context, "alpha", "open")
    fresh = replace(record, run=replace(record.run, id=run_id("alpha", "open")[:-6] + "dddddd"))
    world.context.store.put(f"{fresh.prefix}/record.json", fresh.to_json())
    with world.client(("alpha", "reader")) as client:
        assert client.get(f"/api/v1/runs/{fresh.run.id}").status_code == 200
        assert fresh.run.id in client.get("/api/v1/runs").text
