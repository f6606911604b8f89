"""A1: who may write records of one project reads, stops and hides nothing of another: the key decides."""

import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from itertools import product

import pytest
from tests.contracts.database.rows import make_older, row
from tests.serve.world import record_of, run_id, sha
from tests.serve.world import world as made

from gangline.errors import IntegrityError
from gangline.line.record.runs import mark_open
from gangline.serve.context.service_context import StoreHealth
from gangline.serve.database.open import open_database
from gangline.serve.database.types import RunFilter, project_of
from gangline.serve.runs.indexer import Indexer
from gangline.serve.web.permissions import RULES
from gangline.spec.record import StageInfo

pytestmark = pytest.mark.row("A1")
OWN, VICTIM = "alpha", "beta"
VERDICTS = ("passed", "open", "fork")
LATE = 2**62
"""A seq that no other writer reaches."""


def own_key(verdict):
    return f"runs/{OWN}/{sha(OWN, verdict)}/{run_id(OWN, verdict)}"


def crossed(verdict):
    """Another project's commit and run id below a project of one's own: names and key agree with each other."""
    return f"runs/{OWN}/{sha(VICTIM, verdict)}/{run_id(VICTIM, verdict)}"


def names(record, *, project=None, commit=None, run=None):
    run_info = replace(record.run, id=run or record.run.id, project=project or record.run.project)
    return replace(record, seq=LATE, run=run_info, commit=replace(record.commit, sha=commit or record.commit.sha))


def forged(workspace, verdict):
    """(where it lies, record): everything that a writer of `runs/alpha/` may think of."""
    theirs, mine = record_of(workspace, VICTIM, verdict), record_of(workspace, OWN, verdict)
    id_, commit = theirs.run.id, theirs.commit.sha
    yield own_key(verdict), names(theirs)
    yield own_key(verdict), names(mine, run=id_)
    yield own_key(verdict), names(mine, commit=commit)
    yield own_key(verdict), names(mine, project=VICTIM)
    yield own_key(verdict), names(mine, commit=commit, run=id_)
    yield crossed(verdict), names(theirs)
    yield crossed(verdict), names(theirs, project=OWN)
    yield crossed(verdict), names(theirs, project=f"{OWN}/../{VICTIM}")
    yield own_key(verdict), names(mine, project=f"{VICTIM}/{commit}/{id_}", commit="x", run="y")
    yield own_key(verdict), names(mine, project=f"../runs/{VICTIM}", commit=commit, run=id_)
    yield own_key(verdict), names(mine, project=VICTIM.upper(), commit=commit, run=id_.upper())
    yield own_key(verdict), names(mine, run=id_.replace("e", "\N{CYRILLIC SMALL LETTER IE}"))
    yield own_key(verdict), names(mine, run=f"{id_}\0")
    yield own_key(verdict), names(mine, run=f" {id_}")
    yield f"runs/{OWN}/{commit}/{id_.upper()}", names(theirs, project=OWN, run=id_.upper())
    yield f"runs/{OWN}/{commit[:8]}/{id_}", names(theirs, project=OWN, commit=commit[:8])


ATTACKS = range(16)


@pytest.fixture(scope="module")
def still(tmp_path_factory):
    with made(tmp_path_factory.mktemp("world")) as found, found.serving():
        yield found


@pytest.fixture
def served(still):
    """As nobody has attacked it."""
    yield still
    workspace = still.context
    for entry in list(workspace.store.list("runs/")) + list(workspace.store.list("open/")):
        workspace.store.delete(entry.key)
    for project in (OWN, VICTIM):
        for verdict in VERDICTS:
            record = record_of(workspace, project, verdict)
            workspace.store.put(f"{record.prefix}/record.json", record.to_json())
            if record.run.state == "open":
                mark_open(workspace.store, record)


def attack(world, place):
    """Write the forged records, mark them open, and let the index find them by each of its ways; their ids."""
    workspace = world.context
    indexer = Indexer(workspace.store, workspace.database.runs, health=StoreHealth(), telemetry=workspace.telemetry)
    for verdict in VERDICTS:
        prefix, record = list(forged(workspace, verdict))[place]
        workspace.store.put(f"{prefix}/record.json", record.to_json())
        _, project, commit, run = prefix.split("/")
        workspace.store.put(f"open/{project}/{run}", commit.encode())
        indexer.refresh(project, commit, run)
        yield run
    indexer.open_pass()
    indexer.full_pass()
    indexer.open_pass()


@pytest.mark.parametrize("place", ATTACKS)
def test_a_forged_record_opens_no_route_to_another_projects_run_and_stops_none(served, place):
    named = set(attack(served, place))
    rules = [rule for rule in RULES if "{run}" in rule.path]
    with served.client((OWN, "maintainer")) as client:
        for rule, verdict in product(rules, VERDICTS):
            path = rule.path.replace("{run}", run_id(VICTIM, verdict)).replace("{kind}", "report")
            answer = client.request(rule.method, path)
            assert answer.status_code == 404, (rule, answer.text[:200])
        rows = client.get("/api/v1/runs", params={"limit": 200}).json()["runs"]
        assert {project_of(row["run"]) for row in rows} | {row["project"] for row in rows} == {OWN}
        both = client.get("/compare", params={"run": [run_id(VICTIM, "passed"), run_id(OWN, "passed")]})
        assert both.status_code == 404
        for run in named | {run_id(OWN, "open")}:
            client.post(f"/api/v1/runs/{run}/cancel", json={"reason": "not mine"})
    for verdict in VERDICTS:
        key = f"{record_of(served.context, VICTIM, verdict).prefix}/record.json"
        assert b"not mine" not in served.context.store.get(key).data


@pytest.mark.parametrize("place", ATTACKS)
def test_a_forged_record_hides_nothing_from_whom_it_belongs_to(served, place):
    list(attack(served, place))
    with served.client((VICTIM, "maintainer")) as client:
        rows = {row["run"]: row for row in client.get("/api/v1/runs").json()["runs"]}
        assert rows.keys() == {run_id(VICTIM, each) for each in VERDICTS}
        for verdict in VERDICTS:
            theirs = run_id(VICTIM, verdict)
            assert (rows[theirs]["commit"], rows[theirs]["seq"] < LATE) == (sha(VICTIM, verdict), True)
            record = client.get(f"/api/v1/runs/{theirs}").json()
            assert (record["run"]["project"], record["commit"]["sha"]) == (VICTIM, sha(VICTIM, verdict))
            assert client.get(f"/runs/{theirs}").status_code == 200
    counts = served.context.database.runs.counts(None)
    assert sum(count for (project, _), count in counts.items() if project == VICTIM) == len(VERDICTS)


def test_a_gang_of_another_project_is_not_followed_no_matter_who_names_it_in_a_record(served):
    workspace = served.context
    mine = record_of(workspace, OWN, "passed")
    for name in (run_id(VICTIM, "open"), f"{mine.run.id}-t2/../{run_id(VICTIM, 'open')}", mine.run.id[:-1], ""):
        stolen = replace(mine, seq=LATE, gang=replace(mine.gang, name=name))
        workspace.store.put(f"{mine.prefix}/record.json", stolen.to_json())
        with served.client((OWN, "reader")) as client:
            for path in ("/logs", "/events", ""):
                assert client.get(f"/api/v1/runs/{mine.run.id}{path}").status_code == 409


def test_a_watch_follows_no_gang_that_a_record_names_later(served):
    workspace = served.context
    mine = record_of(workspace, OWN, "open")
    workspace.store.put(f"{mine.prefix}/record.json", replace(mine, seq=1).to_json())
    with (
        served.client((OWN, "reader")) as client,
        client.stream("GET", f"/api/v1/runs/{mine.run.id}/events") as stream,
    ):
        lines = stream.iter_lines()
        assert next(line for line in lines if line.startswith("id:")) == "id: 1"
        gang = replace(record_of(workspace, OWN, "passed").gang, name=run_id(VICTIM, "open"))
        running = {"train": StageInfo(state="running")}
        workspace.store.put(f"{mine.prefix}/record.json", replace(mine, seq=2, gang=gang, stages=running).to_json())
        time.sleep(1.5)  # a look a second
        workspace.store.put(f"{mine.prefix}/record.json", replace(mine, seq=3).to_json())
        assert next(line for line in lines if line.startswith("id:")) == "id: 3"


def test_rows_of_another_projects_runs_are_not_even_made(served):
    row = served.context.database.runs.get(run_id(VICTIM, "open"))
    with pytest.raises(IntegrityError):
        replace(row, project=OWN)


def test_rows_that_were_believed_once_go_when_the_database_is_brought_up(tmp_path):
    path = tmp_path / "serve.db"
    with closing(open_database(str(path))) as database:
        database.runs.put([row(1), row(2, project="beta")])
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(
            'UPDATE runs SET project = \'alpha\', body = replace(body, \'"project":"beta"\', \'"project":"alpha"\')'
        )
        make_older(raw.execute, 1)
    with closing(open_database(str(path))) as database:
        assert database.runs.search(RunFilter()) == []
