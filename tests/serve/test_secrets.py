"""No secret that the service holds is in an answer, a log line or its database."""

import base64

import pytest
from tests.serve.world import SECRETS

from gangline.serve.web.permissions import RULES

ODD = "%2e%2e%2f'\"<script>$(id)"


def canaries(world):
    """Every secret, and how it may be hidden."""
    key = (world.context.home / "session-key").read_bytes()
    plain = [*SECRETS.values(), *world.tokens.values(), key.hex()]
    return [*plain, *(base64.b64encode(each.encode()).decode().rstrip("=") for each in plain)]


def strikes(world):
    """(method, path) of every route, for runs that are there, that are not, and that are no names."""
    for rule in RULES:
        for run in (world.run("alpha"), world.run("alpha", "open"), "alpha-00000000-aaaaaa", ODD):
            given = {
                "run": run,
                "kind": "report",
                "order": "7",
                "search": "s-00000000-aaaa",
                "beginning": "0" * 8,
                "name": "style.css",
                "forge": "ours",
            }
            path = rule.path.format(**given)
            yield rule.method, path
            yield rule.method, f"{path}?limit=x&before={ODD}&since={ODD}&rank=x"


@pytest.mark.row("I6")
@pytest.mark.row("P10")
def test_no_answer_log_or_database_holds_a_secret(world, capsys):
    said = []
    with world.client() as known, world.client(None) as unknown:
        known.post("/login", data={"token": world.tokens["*", "admin"]})
        for client in (known, unknown):
            for method, path in strikes(world):
                if "/events" in path and world.run("alpha", "open") in path:  # it ends with its run
                    continue
                for body in (b"{", b'{"project": "alpha"}'):
                    answer = client.request(method, path, content=body, headers={"Content-Type": "application/json"})
                    assert answer.status_code < 500, (method, path, answer.text)
                    said.append(f"{answer.headers} {answer.text}")
    logged = capsys.readouterr()
    files = [path.read_bytes() for path in world.context.home.glob("serve.db*")]
    for canary in canaries(world):
        assert not any(canary in each for each in said), canary[:6]
        assert canary not in logged.out + logged.err
        assert not any(canary.encode() in each for each in files)


@pytest.mark.row("I6")
def test_token_in_the_address_is_not_a_token_and_not_repeated(world, capsys):
    token = world.tokens["*", "admin"]
    with world.client(None) as client:
        for name in ("token", "access_token", "once"):
            answer = client.get("/login" if name == "once" else "/api/v1/runs", params={name: token})
            assert answer.status_code == 401
            assert token not in answer.text
    assert token not in "".join(capsys.readouterr())
