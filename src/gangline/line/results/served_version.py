"""A version for a server: found by name, verified file by file, and only then in the folder that it is loaded from.

What is checked is what is loaded: signature, provenance, digests, nothing beyond, and the alias. Record, project and
tag are checked when a version is promoted, and need a clone; a server has none.
"""

import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gangline.errors import IntegrityError, UsageError, storage_errors
from gangline.line.results.verification import check_target
from gangline.registry.promote import verify_alias
from gangline.registry.version_checks import CheckResult, check_files, run_check
from gangline.registry.versions import Alias, Version, read_alias, read_version, version_numbers
from gangline.signing.keys import PublicKey, trusted_keys
from gangline.spec.config.site import Site
from gangline.storage.objects.blobs import PREFIX, get_blob
from gangline.storage.objects.code_layer import unpack
from gangline.storage.objects.protocol import ObjectStore
from gangline.train.model.published import read_config

_TARGET = re.compile(r"(?:models/)?(?P<model>[a-z][a-z0-9-]*)(?:[/@](?P<which>[a-z0-9][a-z0-9-]*))?")


@dataclass(frozen=True, slots=True)
class NamedVersion:
    """A version, and the alias that it was found by."""

    version: Version
    alias: Alias | None = None

    def checks(self, keys: Mapping[str, PublicKey]) -> tuple[CheckResult, ...]:
        """Checks of the alias; none without one."""
        alias = self.alias
        if alias is None:
            return ()
        return (
            run_check("alias", lambda: verify_alias(alias, keys)),
            run_check("points", lambda: check_target(alias, self.version)),
        )


def find_version(target: str, store: ObjectStore) -> NamedVersion:
    """The version that `MODEL`, `MODEL@ALIAS`, `MODEL@7` or `MODEL/7` names; `MODEL` alone: its newest.

    Raises:
        UsageError: There is none.
    """
    named = _TARGET.fullmatch(target)
    if named is None:
        raise UsageError(f"wanted MODEL, MODEL@ALIAS or MODEL/VERSION, found {target[:80]!r}")
    model, which = named["model"], named["which"]
    alias = None
    if which is None or which.isdecimal():
        numbers = version_numbers(store, model)
        number = int(which) if which else max(numbers, default=0)
    else:
        numbers, alias = (), read_alias(store, model, which)
        if alias is None:
            raise UsageError(f"nothing was promoted to {model}@{which}; gangline promote {model} VERSION {which}")
        number = alias.version
    version = read_version(store, model, number)
    if version is None:
        existing = ", ".join(map(str, numbers)) or "none"
        raise UsageError(f"there is no {model} {number or ''} in {store.url}; versions of {model}: {existing}")
    return NamedVersion(version, alias)


def fetch_verified(
    named: NamedVersion, into: Path, *, store: ObjectStore, site: Site, environ: Mapping[str, str]
) -> tuple[CheckResult, ...]:
    """Put the files of a version into the folder `into`, if every check holds; nothing is there otherwise.

    Raises:
        UsageError: The folder has files already.
    """
    keys = trusted_keys(site, environ)
    with storage_errors(into):
        into.mkdir(parents=True, exist_ok=True)
        if any(path.name != "lost+found" for path in into.iterdir()):
            raise UsageError(f"wanted an empty folder, {into} has files: a version is all that is in its folder")
        staged = into / f".verifying-{secrets.token_hex(4)}"
        staged.mkdir()
        try:
            checks = (*named.checks(keys), *check_files(named.version, store, keys, staged))
            if all(check.ok for check in checks):
                for path in sorted(staged.iterdir()):
                    path.rename(into / path.name)
        finally:
            shutil.rmtree(staged, ignore_errors=True)
    return checks


def require_verified(target: str, checks: tuple[CheckResult, ...]) -> None:
    """Raises IntegrityError with every check that failed."""
    failed = [f"{check.name}: {check.text}" for check in checks if not check.ok]
    if failed:
        raise IntegrityError(f"{target} is not served: {'; '.join(failed)}")


def code_layer(folder: Path, store: ObjectStore) -> bytes:
    """Code of a verified version, by the digest that its signed `config.json` names."""
    key = str(read_config(folder).get("code") or "")
    return get_blob(store, key if key.startswith(PREFIX) else PREFIX + key)


def fetch_code(folder: Path, into: Path, store: ObjectStore) -> int:
    """Unpack the code of a verified version into an empty folder; the number of files."""
    into.mkdir(parents=True, exist_ok=True)
    if any(into.iterdir()):
        raise UsageError(f"wanted an empty folder for the code, {into} has files")
    staged = into / ".unpacking"
    count = unpack(code_layer(folder, store), staged)
    for path in sorted(staged.iterdir()):
        path.rename(into / path.name)
    staged.rmdir()
    return count
