"""Deliveries: real ones of a Gitea 1.25, those of GitHub and GitLab as their documentation shows them.

What is signed and readable becomes a hint; whatever else is sent is refused before, or at, its parsing.
"""

import hmac
import json
import random
import time
from hashlib import sha1, sha256
from pathlib import Path
from statistics import median

import pytest
from tests.contracts.forge.conftest import SECRET, forge_of

from gangline.forge.protocol import InvalidSignatureError, MalformedDeliveryError
from gangline.forge.webhook_delivery import MAX_DEPTH

FOLDER = Path(__file__).parent / "deliveries"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json") if path.stem != "gitea-as-sent")
URLS = {
    "github": "https://github.example.org",
    "gitlab": "https://gitlab.example.org",
    "gitea": "https://g.example.org",
}
KINDS = sorted(URLS)
TEAM = {"github": "team/tiny", "gitlab": "team/ml/tiny", "gitea": "ann/tiny"}


def signed(kind, body, secret=SECRET, algorithm=sha256):
    digest = hmac.new(secret.encode(), body, algorithm).hexdigest()
    return {
        "github": {"X-Hub-Signature-256": f"sha256={digest}"},
        "gitea": {"X-Gitea-Signature": digest},
        "gitlab": {"X-Gitlab-Token": secret},
    }[kind]


def load(name):
    """(kind, headers, body) of a delivery, unsigned."""
    kept = json.loads((FOLDER / f"{name}.json").read_text())
    return name.split("-")[0], kept["headers"], json.dumps(kept["body"]).encode()


def hint_of(name):
    kind, headers, body = load(name)
    return forge_of(kind, URLS[kind]).verify(headers | signed(kind, body), body)


def test_a_delivery_that_a_gitea_sent_is_what_its_signature_says():
    kept = json.loads((FOLDER / "gitea-as-sent.json").read_text())
    hint = forge_of("gitea", URLS["gitea"]).verify(kept["headers"], kept["raw"].encode())
    assert (hint.event, hint.repository, hint.ref) == ("push", "ann/tiny", "refs/heads/main")
    assert hint.delivery == kept["headers"]["X-Gitea-Delivery"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_push_names_its_branch(kind):
    hint = hint_of(f"{kind}-push_to_branch")
    assert (hint.event, hint.repository, hint.ref) == ("push", TEAM[kind], "refs/heads/feature/x")
    assert (hint.branch, hint.pull_request, hint.is_fork) == ("feature/x", None, False)


@pytest.mark.parametrize("kind", KINDS)
def test_a_deleted_branch_is_a_hint_at_its_ref(kind):
    hint = hint_of(f"{kind}-branch_deleted")
    assert (hint.event, hint.ref) == ("push", "refs/heads/feature/x")


@pytest.mark.parametrize("event", ["opened", "synchronized"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pull_request_names_the_ref_that_the_forge_keeps(kind, event):
    hint = hint_of(f"{kind}-pull_request_{event}")
    number = hint.pull_request
    assert hint.ref == (f"refs/merge-requests/{number}/head" if kind == "gitlab" else f"refs/pull/{number}/head")
    assert (hint.event, hint.repository, hint.branch) == ("pull_request", TEAM[kind], "feature/x")
    assert not hint.is_fork


@pytest.mark.parametrize("name", [n for n in NAMES if n.endswith(("closed", "merged"))])
def test_a_closed_pull_request_is_a_hint_at_its_ref(name):
    assert hint_of(name).event == "pull_request"


@pytest.mark.parametrize("name", [n for n in NAMES if n.endswith("fork")])
def test_commits_of_another_repository_are_a_forks(name):
    assert hint_of(name).is_fork


@pytest.mark.parametrize("name", [n for n in NAMES if n.endswith(("tag", "labeled", "approved", "ping"))])
def test_other_events_ask_for_nothing(name):
    hint = hint_of(name)
    assert (hint.event, hint.ref) == ("other", "")


@pytest.mark.parametrize("name", NAMES)
def test_header_names_have_no_case(name):
    kind, headers, body = load(name)
    shouted = {key.upper(): value for key, value in (headers | signed(kind, body)).items()}
    assert forge_of(kind, URLS[kind]).verify(shouted, body) == hint_of(name)


@pytest.mark.row("P6")
@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_signed_by_the_secret_is_forged(name, seed):
    kind, headers, body = load(name)
    forge = forge_of(kind, URLS[kind])
    draw = random.Random(seed)
    attempts = [
        {},
        signed(kind, body, secret="other tenant"),
        signed(kind, body, secret=SECRET + " "),
        dict.fromkeys(signed(kind, body), ""),
        dict.fromkeys(signed(kind, body), "é\u202e"),
        {key: value[:-1] for key, value in signed(kind, body).items()},
        {"X-Hub-Signature": "sha1=" + hmac.new(SECRET.encode(), body, sha1).hexdigest()},
    ]
    for wrong in attempts:
        with pytest.raises(InvalidSignatureError):
            forge.verify(headers | wrong, body)
    if kind != "gitlab":  # whose token says nothing about the body
        right = signed(kind, body)
        for _ in range(200):
            at = draw.randrange(len(body))
            changed = body[:at] + bytes([body[at] ^ (1 << draw.randrange(8))]) + body[at + 1 :]
            with pytest.raises(InvalidSignatureError):
                forge.verify(headers | right, changed)


@pytest.mark.row("P6")
@pytest.mark.parametrize("kind", ["github", "gitea"])
def test_a_wrong_signature_takes_as_long_wherever_it_is_wrong(kind):
    forge, body = forge_of(kind, URLS[kind]), b"{}" * 2000
    ((name, right),) = signed(kind, body).items()
    first, last = right[:-64] + "x" + right[-63:], right[:-1] + "x"

    def seconds(signature):
        began = time.perf_counter()
        with pytest.raises(InvalidSignatureError):
            forge.verify({name: signature}, body)
        return time.perf_counter() - began

    times = [(seconds(first), seconds(last)) for _ in range(300)]
    early, late = median(t[0] for t in times), median(t[1] for t in times)
    assert 0.7 < early / late < 1.4


@pytest.mark.row("F2")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"7", b'"text"', b"\xff\xfe", b"payload=%7B%7D", b"{}\x00",
        b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1), b"[" * (24 << 20),
        b'{"ref": ' + b"9" * 5000 + b"}",
    ],
    ids=lambda body: f"{body[:12]!r}-{len(body)}",
)  # fmt: skip
def test_signed_rubbish_is_malformed(kind, body):
    headers = {"X-GitHub-Event": "push", "X-Gitea-Event": "push"} | signed(kind, body)
    forge = forge_of(kind, URLS[kind])
    with pytest.raises(MalformedDeliveryError):
        forge.verify(headers, body)


@pytest.mark.row("F2")
@pytest.mark.parametrize("name", NAMES)
def test_mutated_deliveries_are_a_hint_or_malformed_and_nothing_else(name, seed):
    kind, headers, body = load(name)
    forge, draw = forge_of(kind, URLS[kind]), random.Random(seed)
    for _ in range(100):
        mutated = mutate(json.loads(body), draw)
        raw = json.dumps(mutated).encode()
        try:
            hint = forge.verify(headers | signed(kind, raw), raw)
        except MalformedDeliveryError:
            continue
        assert hint.ref == "" or hint.ref.startswith("refs/")
        assert not set(hint.ref) & set(" \n\x00~^:?*[\\")
        assert ".." not in hint.ref
        assert ".." not in hint.repository.split("/")


EVIL = (
    "../../x",
    "$(id)",
    "a\nb",
    "\x00",
    "\ud800",
    "x" * 5000,
    "",
    "-x",
    "@{1}",
    None,
    0,
    -1,
    2**70,
    1.5,
    True,
    [],
    {},
)


def mutate(found, draw):
    """`found` with one value somewhere in it replaced, or one key gone."""
    place, path = found, []
    while isinstance(place, dict | list) and place:
        key = draw.choice(sorted(place)) if isinstance(place, dict) else draw.randrange(len(place))
        path.append((place, key))
        place = place[key]
        if draw.random() < 0.4:
            break
    holder, key = path[-1]
    if draw.random() < 0.3:
        del holder[key]
    else:
        holder[key] = draw.choice(EVIL)
    return found


@pytest.mark.parametrize(
    "ref", ["refs/heads/a\nb", "refs/heads/$(id)..x", "refs/heads/-f", "refs/heads/a.lock", "main"]
)
def test_a_branch_that_git_would_not_take_is_not_a_branch(ref):
    body = json.dumps({"ref": ref, "after": "1" * 40, "repository": {"full_name": "team/tiny"}}).encode()
    hint = forge_of("github", URLS["github"]).verify({"X-GitHub-Event": "push"} | signed("github", body), body)
    assert (hint.event, hint.ref) == ("other", "")


def test_a_branch_full_of_shell_is_a_branch():
    name = "$(rm);`id`&'x\"<b>"
    body = json.dumps({"ref": f"refs/heads/{name}", "after": "1" * 40, "repository": {"full_name": "t/x"}}).encode()
    hint = forge_of("github", URLS["github"]).verify({"X-GitHub-Event": "push"} | signed("github", body), body)
    assert hint.branch == name
