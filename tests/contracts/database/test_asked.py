"""An order is found by who asked for it, however many others there are."""

import pytest
from tests.contracts.database.rows import order


@pytest.mark.parametrize("by", ["person #12ab", 'per"son', "50%_!", "Größe", "BACK\\slash"])
def test_the_newest_order_is_found_no_matter_who_asked(database, by):
    for number in range(3):
        database.orders.add(order(f"refs/heads/b{number}", asked_by=by), now=1.0)
        database.orders.add(order(f"refs/heads/b{number}", project="beta", asked_by=by), now=1.0)
        database.orders.add(order(f"refs/heads/c{number}", asked_by=f"{by} too"), now=1.0)
        database.orders.add(order(f"refs/heads/d{number}", asked_by=by.swapcase() + "."), now=1.0)
    found = database.orders.find_by_requester(project="alpha", by=by)
    assert (found.project, found.asked_by, found.ref) == ("alpha", by, "refs/heads/b2")


@pytest.mark.parametrize("by", ["", "%", "person #12a", "son", '", "again": false'])
def test_who_asked_for_nothing_has_none(database, by):
    database.orders.add(order(asked_by="person #12ab"), now=1.0)
    assert database.orders.find_by_requester(project="alpha", by=by) is None
