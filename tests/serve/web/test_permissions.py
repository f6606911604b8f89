"""Who may call what: the whole table, for two tenants, three roles, an administrator and nobody."""

import json
import re

import pytest
from tests.report import searches
from tests.search.stored import LR, store_search
from tests.serve.world import ROLES, TENANTS
from tests.serve.world import world as made

from gangline.serve.database.types import ROLES as ALL_ROLES
from gangline.serve.database.types import Order
from gangline.serve.web.permissions import RULES, MatchedRule, find_rule

NOBODY = ("", "")
ADMIN = ("*", "admin")
CALLERS = [(project, role) for project in TENANTS for role in ROLES] + [ADMIN, NOBODY]
BODIES = {
    ("POST", "/api/v1/runs"): {"project": "alpha", "branch": "main"},
    ("POST", "/hooks/{forge}"): {"unsigned": True},
    ("POST", "/api/v1/tokens"): {"name": "x", "roles": {"alpha": "reader"}},
}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with made(tmp_path_factory.mktemp("world")) as found, found.serving():
        order = found.context.database.orders.add(Order(project="alpha", ref="refs/heads/main"), now=1.0)
        assert order.id == 1
        store_search(found.context.store, searches.request(project="alpha", space={LR: searches.request().space[LR]}))
        yield found


def path_of(rule, world):
    """Everything in the path is of the tenant `alpha`."""
    run = world.run("alpha", "fork" if "approve" in rule.path else "open" if "cancel" in rule.path else "passed")
    given = {"run": run, "kind": "report", "order": "1", "beginning": "0" * 8, "name": "style.css", "forge": "ours"}
    given["search"] = searches.ID
    return re.sub(r"\{(\w+)\}", lambda match: given[match[1]], rule.path)


def expected(rule, caller):
    """Statuses that say yes, or the one that says no."""
    project, role = caller
    allowed = {200, 201, 202, 204, 303, 404} if rule.path.endswith("{beginning}") else {200, 201, 202, 204, 303}
    if rule.scope in ("open", "signed"):
        return allowed | {401, 422}
    if caller == NOBODY:
        return {303} if rule.is_page and rule.method == "GET" else {401}
    enough = role in ALL_ROLES and ALL_ROLES.index(role) >= ALL_ROLES.index(rule.role)
    if rule.scope == "own":
        return allowed
    if rule.scope == "all":
        return allowed if caller == ADMIN else {403}
    if project not in ("alpha", "*"):
        return {404}
    return allowed if enough else {403}


@pytest.mark.row("A1")
@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: "-".join(caller) or "nobody")
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.method} {rule.path}")
def test_route_answers_a_caller_as_its_rule_says(served, rule, caller):
    body = BODIES.get((rule.method, rule.path))
    with served.client(caller if caller != NOBODY else None) as client:
        path = path_of(rule, served)
        if rule.path == "/compare":
            path += f"?run={served.run('alpha')}&run={served.run('alpha', 'open')}"
        answer = client.request(rule.method, path, json=body)
    if rule.is_page and rule.method == "POST" and rule.scope != "open" and caller != NOBODY:
        wanted = {404} if caller[0] not in ("alpha", "*") else {403}  # a page writes for a session's form alone
    elif rule.path in ("/compare", "/searches/{search}") and caller != NOBODY and caller[0] not in ("alpha", "*"):
        wanted = {404}
    else:
        wanted = expected(rule, caller)
    assert answer.status_code in wanted, answer.text[:300]


@pytest.mark.row("A1")
def test_every_route_that_is_served_has_a_rule_and_every_rule_a_route(served):
    routes = {
        (method, getattr(context or route, "path", route.path))
        for route, context in _routes(served.app)
        for method in (getattr(route, "methods", None) or ())
        if method != "HEAD"
    }
    assert routes == {(rule.method, rule.path) for rule in RULES}
    assert all(isinstance(find_rule(rule.method, rule.path), MatchedRule) for rule in RULES)


def _routes(app):
    from fastapi.routing import _iter_routes_with_context  # no public way lists what routers have brought

    return list(_iter_routes_with_context(app.router.routes))


@pytest.mark.row("A1")
def test_another_tenants_run_answers_byte_for_byte_like_an_absent_one(served):
    absent = "alpha-00000000-aaaaaa"
    with served.client(("beta", "maintainer")) as client:
        for tail in ("", "/metrics", "/logs", "/events", "/artifacts/report"):
            theirs = client.get(f"/api/v1/runs/{served.run('alpha')}{tail}")
            nobodys = client.get(f"/api/v1/runs/{absent}{tail}")
            assert theirs.status_code == nobodys.status_code == 404
            assert theirs.text == nobodys.text


@pytest.mark.row("A1")
def test_lists_show_a_tenant_its_own_projects_alone(served):
    with served.client(("beta", "reader")) as client:
        runs = client.get("/api/v1/runs").json()["runs"]
        assert {row["project"] for row in runs} == {"beta"}
        assert client.get("/api/v1/runs", params={"project": "alpha"}).json()["runs"] == []
        assert client.get("/api/v1/orders", params={"project": "alpha"}).json()["orders"] == []
        assert "alpha" not in client.get("/runs").text
        assert json.dumps(client.get("/api/v1/orders").json()).find("alpha") == -1


def test_start_asks_for_a_runner_of_the_project_that_the_body_names(served):
    def start(caller, project):
        with served.client(caller) as client:
            return client.post("/api/v1/runs", json={"project": project, "branch": "main"}).status_code

    assert start(("alpha", "reader"), "alpha") == 403
    assert start(("alpha", "runner"), "alpha") == 202
    assert start(("alpha", "maintainer"), "beta") == 404
    assert start(ADMIN, "beta") == 202
    assert start(ADMIN, "gamma") == 404
