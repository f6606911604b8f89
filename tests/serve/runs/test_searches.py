"""A search in the service: its page for those who may read its project, and its link from the project's runs."""

import pytest
from tests.report import searches
from tests.search.stored import LR, store_search


@pytest.fixture
def searched(world):
    request = searches.request(project="alpha", space={LR: searches.request().space[LR]}, branch="<b>main</b>")
    store_search(world.context.store, request)
    return world


def test_a_search_is_a_page_for_its_readers_and_nothing_for_others(searched):
    page = f"/searches/{searches.ID}"
    with searched.client(("alpha", "reader")) as client:
        shown = client.get(page)
        runs = client.get("/runs", params={"project": "alpha"})
        other = client.get("/searches/s-00000000-aaaa")
    assert shown.status_code == 200
    assert "trial " in shown.text
    assert "on 3 fresh seeds" in shown.text
    assert "<b>main</b>" not in shown.text
    assert f'href="{page}"' in runs.text
    assert f'href="{page}"' not in client_text(searched, ("alpha", "reader"), "/runs")
    with searched.client(("beta", "maintainer")) as client:
        refused = client.get(page)
        listed = client.get("/runs", params={"project": "alpha"})
    assert (refused.status_code, other.status_code) == (404, 404)
    assert searches.ID not in listed.text
    with searched.client(None) as client:
        assert client.get(page, follow_redirects=False).status_code == 303


def client_text(world, who, path):
    with world.client(who) as client:
        return client.get(path).text


def test_a_damaged_request_is_a_search_that_is_not_there(searched):
    searched.context.store.put(f"searches/alpha/{searches.ID}/search.json", b"{}")
    with searched.client(("alpha", "reader")) as client:
        assert client.get(f"/searches/{searches.ID}").status_code == 404
        assert client.get("/runs", params={"project": "alpha"}).status_code == 200
