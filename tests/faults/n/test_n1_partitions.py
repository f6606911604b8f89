"""N1: packets between a service and its database or its store are dropped, one way or both: safe always, live after."""

import json

import pytest
from tests.contracts.database.servers import BINARIES
from tests.contracts.storage.servers import tool
from tests.faults.n.network import run_alone

pytestmark = [pytest.mark.row("N1", full="20 cuts of a service from its database in each of 3 ways"), pytest.mark.tools]
SECONDS = 240
WAYS = ["both", pytest.param("to", marks=pytest.mark.slow), pytest.param("from", marks=pytest.mark.slow)]
LIVE_SECONDS = 30.0


@pytest.mark.parametrize("more", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in range(1, 20))])
@pytest.mark.parametrize("way", WAYS)
def test_a_service_cut_off_from_its_database_doubles_nothing_and_comes_back(tmp_path, seed, way, more):
    if not (BINARIES / "postgres").exists():
        pytest.skip("no PostgreSQL 15 here: apt-get install postgresql")
    reported = json.loads(run_alone("divided_services.py", tmp_path, way, seed + more, timeout=SECONDS))
    assert reported.pop("alive_seconds") <= LIVE_SECONDS
    assert reported == {"commits": True, "runs": True, "verdicts": ["passed"], "drivers_of_a_run": [1]}


@pytest.mark.parametrize("way", WAYS)
def test_a_service_cut_off_from_its_store_keeps_its_lists_and_catches_up(tmp_path, way):
    tool("versitygw")
    reported = json.loads(run_alone("divided_store.py", tmp_path, way, timeout=SECONDS))
    assert reported["kept"]
    assert reported["noticed_seconds"] <= LIVE_SECONDS
    assert reported["alive_seconds"] <= LIVE_SECONDS
