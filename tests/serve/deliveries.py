"""Deliveries as forges sign them, and a site that three forges send to."""

import hmac
import json
from hashlib import sha256
from uuid import uuid4

from gangline.spec.config.site import ForgeTable, Site

SECRET = "hook-secret-of-the-tests"
ENVIRON = {"HOOK": SECRET, "OTHER_HOOK": "the other tenant's"}
REPOSITORY = "team/model"
SITE = Site(
    forge={
        "hub": ForgeTable(kind="github", projects={REPOSITORY: "alpha"}, hook_secret="secret:env:HOOK"),
        "tea": ForgeTable(
            kind="gitea", url="http://127.0.0.1:1", projects={REPOSITORY: "beta"}, hook_secret="secret:env:HOOK"
        ),
        "lab": ForgeTable(
            kind="gitlab", url="http://127.0.0.1:1", projects={REPOSITORY: "gamma"}, hook_secret="secret:env:HOOK"
        ),
        "other": ForgeTable(kind="github", projects={"else/where": "delta"}, hook_secret="secret:env:OTHER_HOOK"),
        "bare": ForgeTable(kind="github", projects={"no/secret": "epsilon"}),
    }
)


def push(branch="main", commit="1" * 40, repository=REPOSITORY, **fields):
    """Body of a push as GitHub and Gitea tell it."""
    return {
        "ref": f"refs/heads/{branch}", "before": "0" * 40, "after": commit, "deleted": False,
        "repository": {"full_name": repository, "id": 7}, "pusher": {"name": "dev"}, "commits": [],
    } | fields  # fmt: skip


def pull_request(number=7, branch="topic", fork=False, action="opened"):
    head = "stranger/model" if fork else REPOSITORY
    return {
        "action": action,
        "number": number,
        "pull_request": {
            "number": number, "state": "open",
            "head": {"ref": branch, "sha": "2" * 40, "repo": {"full_name": head, "id": 8 if fork else 7, "fork": fork}},
            "base": {"ref": "main", "sha": "1" * 40, "repo": {"full_name": REPOSITORY, "id": 7}},
        },
        "repository": {"full_name": REPOSITORY, "id": 7},
    }  # fmt: skip


def signed(payload, *, kind="github", event="push", secret=SECRET, delivery=None):
    """(headers, body) of a delivery."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    digest = hmac.new(secret.encode(), body, sha256).hexdigest()
    delivery = delivery or str(uuid4())
    of_kind = {
        "github": {"X-Hub-Signature-256": f"sha256={digest}", "X-GitHub-Delivery": delivery, "X-GitHub-Event": event},
        "gitea": {"X-Gitea-Signature": digest, "X-Gitea-Delivery": delivery, "X-Gitea-Event": event},
        "gitlab": {"X-Gitlab-Token": secret, "Idempotency-Key": delivery, "X-Gitlab-Event": "Push Hook"},
    }
    return {"Content-Type": "application/json", **of_kind[kind]}, body
