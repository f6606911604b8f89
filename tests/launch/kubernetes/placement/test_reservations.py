"""The ledger alone: compare-and-set, its size, what is outstanding."""

import pytest
from tests.cluster.fake.api import FakeApi

from gangline.errors import CapacityError
from gangline.launch.kubernetes.client.api import ApiConflict
from gangline.launch.kubernetes.placement.reservations import (
    PlacementLedger,
    Reservation,
    ledger_path,
    read_ledger,
    write_ledger,
)


def promise(*servers, **more):
    return Reservation(
        uid="u", servers=servers, need={"cpu": 1000, "pods": 1}, since="2026-01-01T00:00:00+00:00", **more
    )


@pytest.fixture
def api():
    return FakeApi()


def test_an_absent_ledger_is_empty_and_made_at_the_first_write(api):
    ledger = read_ledger(api)
    assert (ledger.version, ledger.reservations) == (None, {})
    write_ledger(api, ledger.with_reservation("g", promise("a")))
    assert read_ledger(api).reservations == {"g": promise("a")}


@pytest.mark.parametrize("there_is_one", [True, False])
def test_of_two_writers_who_read_the_same_the_second_is_refused(api, there_is_one):
    if there_is_one:
        write_ledger(api, read_ledger(api).with_reservation("old", promise("z")))
    first, second = read_ledger(api), read_ledger(api)
    write_ledger(api, first.with_reservation("g", promise("a")))
    with pytest.raises(ApiConflict):
        write_ledger(api, second.with_reservation("h", promise("a")))
    assert "h" not in read_ledger(api).reservations


def test_a_ledger_deleted_since_it_was_read_is_not_success(api):
    ledger = write_ledger(api, read_ledger(api).with_reservation("g", promise("a")))
    api.delete(ledger_path(api.namespace))
    with pytest.raises(ApiConflict, match="was deleted since"):
        write_ledger(api, ledger.with_reservation("h", promise("b")))


def test_the_answer_of_a_write_can_be_written_on(api):
    ledger = write_ledger(api, read_ledger(api).with_reservation("g", promise("a")))
    write_ledger(api, ledger.without(["g"]))
    assert read_ledger(api).reservations == {}


def test_a_full_ledger_says_so_and_writes_nothing(api):
    huge = promise(*[f"server-{i:06}" for i in range(80_000)])
    with pytest.raises(CapacityError, match=r"wanted at most 1\.0 MB, found 1\.\d MB for 1 gangs"):
        write_ledger(api, read_ledger(api).with_reservation("g", huge))
    assert read_ledger(api).version is None


def test_2048_servers_take_a_small_part_of_it(api):
    servers = promise(*[f"rack-17-server-{i:04}" for i in range(2048)])
    write_ledger(api, read_ledger(api).with_reservation("g", servers))
    data = api.get(ledger_path(api.namespace))["data"]
    assert sum(map(len, data.values())) < 60_000


def test_outstanding_is_what_no_bound_pod_requests_yet():
    ledger = PlacementLedger(reservations={"g": promise("a", "a", "b", leaving=("c",))})
    bound = {("g", "a"): {"cpu": 1000, "pods": 1}, ("other", "b"): {"cpu": 1000, "pods": 1}}
    left = ledger.outstanding(bound)
    assert {server: amounts["cpu"] for server, amounts in left.items()} == {"a": 1000, "b": 1000, "c": 1000}


def test_a_pod_that_requests_more_than_promised_leaves_nothing_negative():
    left = PlacementLedger(reservations={"g": promise("a")}).outstanding({("g", "a"): {"cpu": 5000, "pods": 1}})
    assert left == {"a": {"cpu": 0, "pods": 0}}


def test_pools_have_ledgers_of_their_own(api):
    write_ledger(api, read_ledger(api, "fast").with_reservation("g", promise("a")))
    assert (read_ledger(api).reservations, list(read_ledger(api, "fast").reservations)) == ({}, ["g"])


def test_namespaces_that_share_a_ledger_see_each_others_promises_and_keep_them():
    first = FakeApi("gangs")
    second = FakeApi("gangs-b", server=first.server)
    write_ledger(first, read_ledger(first).with_reservation("g", promise("a")))
    write_ledger(second, read_ledger(second, namespace="gangs").with_reservation("g", promise("b")))
    assert sorted(first.get(ledger_path("gangs"))["data"]) == ["g", "gangs-b.g"]
    mine, theirs = read_ledger(first), read_ledger(second, namespace="gangs")
    assert (mine.reservations, mine.others) == ({"g": promise("a")}, {"gangs-b.g": promise("b")})
    assert (theirs.reservations, theirs.others) == ({"g": promise("b")}, {"gangs.g": promise("a")})
    write_ledger(first, mine.without(["g"]))
    assert read_ledger(second, namespace="gangs").reservations == {"g": promise("b")}


def test_what_other_namespaces_are_promised_is_outstanding_as_long_as_it_counts():
    ledger = PlacementLedger(
        reservations={"g": promise("a")}, others={"b.g": promise("a", "c"), "b.over": promise("c")}
    )
    bound = {("b.g", "c"): {"cpu": 1000, "pods": 1}}
    left = ledger.outstanding(bound, counts=lambda gang, _: gang != "b.over")
    assert {server: amounts["cpu"] for server, amounts in left.items()} == {"a": 2000, "c": 0}
