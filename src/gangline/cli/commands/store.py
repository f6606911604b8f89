"""`gangline store`: is the object store what a line needs, and how to copy from one to another."""

import os
import time
from collections.abc import Mapping
from typing import Annotated

import typer

from gangline.cli.options import HERE, JsonOption, RepoOption, SiteOption, command_group
from gangline.cli.output import answer, columns
from gangline.cli.terminal import say
from gangline.cli.workspace import open_workspace
from gangline.errors import StorageError
from gangline.storage.copy import copy_store
from gangline.storage.objects.protocol import Entry, ObjectStore
from gangline.storage.open import open_store
from gangline.storage.probe import probe
from gangline.storage.s3.run_credentials import credential_policy
from gangline.storage.s3.unsigned_writes import WARNING, accepts_unsigned_writes
from gangline.storage.site_paths import CONNECT_SECONDS, named_credentials
from gangline.units import format_bytes

_URL = "Store: file:PATH or s3://bucket/prefix?endpoint=https://host:9000."
_WHERE = "Place of the store's ACCESS:SECRET: secret:env:NAME, secret:file:PATH, aws:role or aws:profile:NAME."
_SECONDS_BETWEEN = 10.0

app = command_group("Look after the object store.")


@app.command()
def doctor(*, repo: RepoOption = HERE, site: SiteOption = None, json: JsonOption = False) -> None:
    """Check conditional writes, lists and reads on the store itself; exit 40 where it fails.

    Also shows which credential the store issues for the gangs of a single run, and warns where it writes without a
    signature, as MinIO's open server does.
    """
    workspace = open_workspace(repo, site)
    probed = probe(workspace.store)
    lends = credential_policy(workspace.store)
    unsigned = accepts_unsigned_writes(workspace.store)
    plain = {
        "url": workspace.store.url,
        "conditional_writes": probed.conditional_writes,
        "checks": probed.checks,
        "accepts_unsigned_writes": unsigned,
        "lends": {"kind": lends.kind, "outlives_seconds": lends.outlives_seconds, "why": lends.why},
    }
    lines = [
        columns([("✓" if check.passed else "✗", check.name, check.reason) for check in probed.checks]),
        f"{workspace.store.url}: conditional writes {'yes' if probed.conditional_writes else 'no: one driver alone'}",
        f"lends {lends}",
        *([f"warning: {WARNING}"] if unsigned else []),
    ]
    answer(plain, "\n".join(lines), json=json)
    if not probed.passed:
        raise typer.Exit(StorageError.exit_code)


@app.command()
def copy(
    *,
    to: Annotated[str, typer.Option("--to", help=_URL)],
    from_: Annotated[str | None, typer.Option("--from", help=_URL, show_default="the site's store")] = None,
    to_credentials: Annotated[str | None, typer.Option("--to-credentials", help=_WHERE)] = None,
    from_credentials: Annotated[str | None, typer.Option("--from-credentials", help=_WHERE)] = None,
    prefix: Annotated[
        str, typer.Option("--prefix", help="Copy only keys that begin with this: models/, runs/demo/.")
    ] = "",
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Copy objects from one store to another, each verified; called again, continue where it stopped."""
    if from_ is None:
        workspace = open_workspace(repo, site)
        source, environ = workspace.store, workspace.environ
    else:
        environ = os.environ
        source = _open(from_, from_credentials, environ)
    counter = _Counter(quiet=json)
    copied = copy_store(source, _open(to, to_credentials, environ), prefix, on_object=counter.count)
    said = f"copied {copied.num_copied} objects, {format_bytes(copied.copied_bytes)}"
    answer(copied, f"{said} · {copied.num_equal} were there already", json=json)


class _Counter:
    """A line on stderr at most every ten seconds."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._seen = 0
        self._next = time.monotonic() + _SECONDS_BETWEEN

    def count(self, entry: Entry, _was_there: bool) -> None:  # the signature is copy_store's
        self._seen += 1
        if not self._quiet and time.monotonic() > self._next:
            self._next = time.monotonic() + _SECONDS_BETWEEN
            say(f"{self._seen} objects, now {entry.key}", err=True)


def _open(url: str, credentials: str | None, environ: Mapping[str, str]) -> ObjectStore:
    named = named_credentials(credentials, environ) if credentials else None
    return open_store(url, credentials=named, connect_seconds=CONNECT_SECONDS)
