"""Fetching from another git server safely: allowed URLs and refs, the environment and settings of git.

The environment of a surrounding git, the user's configuration, hooks, filters, submodules, prompts, proxies and
redirects stay out. A server is dialled at the addresses that were checked: git 2.37 and newer gets them, an older one
looks the name up again.
"""

import base64
import os
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from gangline.errors import UsageError
from gangline.git.bounded_process import ProcessLimits
from gangline.git.branches import LOCAL, is_branch, is_ref_path
from gangline.git.command import UNREPLACED, GitResult, inherited_environment, run_git
from gangline.http.address_check import Resolve, checked_addresses, is_loopback_name, read_origin, system_resolve
from gangline.sanitize import clean

FETCH_SECONDS = 600.0
MEMORY_BYTES = 2 << 30
"""Limit of each git process: objects below `core.bigFileThreshold` are held whole, larger ones are not."""
LIMITS = ProcessLimits(seconds=FETCH_SECONDS, memory_bytes=MEMORY_BYTES)
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_KEPT = ("GIT_SSL_CAINFO", "GIT_SSL_CAPATH")
"""What an administrator may set of git: whose certificates are believed."""
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "",
    "GIT_OPTIONAL_LOCKS": "0", "GIT_LFS_SKIP_SMUDGE": "1", "GIT_ALLOW_PROTOCOL": "", "LC_ALL": "C.UTF-8",
    **UNREPLACED,
}  # fmt: skip
_SETTINGS = {
    "core.bigFileThreshold": "32m",
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "credential.helper": "",
    "fetch.recurseSubmodules": "false",
    "fetch.unpackLimit": "1",
    "gc.autoDetach": "false",
    "http.followRedirects": "false",
    "http.lowSpeedLimit": "1000",
    "http.lowSpeedTime": "60",
    "http.proxy": "",
    "protocol.version": "2",
    "safe.directory": "*",
    "transfer.credentialsInUrl": "die",
}


def check_url(url: str, *, local: bool) -> str:
    """The protocol of `url`, if it is one that may be fetched from.

    Args:
        url: `https://host/path`; `http://` to this machine; a folder, where `local`.
        local: The administrator named this repository: a path of this machine is fine.

    Raises:
        UsageError: Any other; credentials in it are not repeated.
    """
    if local and url.startswith(("/", "file:///")):
        return "file"
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        plain = bool(host) and parts.port != 0 and parts.username is None and parts.password is None
    except ValueError:
        raise UsageError(_refused("an address that cannot be read")) from None
    clean_text = url.isascii() and url.isprintable() and " " not in url
    if not plain or not clean_text or parts.query or parts.fragment:
        raise UsageError(_refused("something else (or with a credential, query or fragment in it)"))
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback_name(host)):
        return parts.scheme
    raise UsageError(_refused(f"{parts.scheme or 'no scheme'} to {host}"))


def check_ref(ref: str) -> str:
    """`ref`, once it is a full ref or object name that git cannot take for an option or a pattern."""
    kind, _, path = ref.partition("/")
    is_ref = kind == "refs" and is_ref_path(path) and not path.startswith("gangline/")
    if _COMMIT.match(ref) or (is_ref and (not ref.startswith(LOCAL) or is_branch(ref.removeprefix(LOCAL)))):
        return ref
    raise UsageError(f"wanted a full ref (refs/heads/main) or a commit's object name, found {clean(ref, limit=80)!r}")


def is_commit(name: str) -> bool:
    """A full object name, in hexadecimal."""
    return _COMMIT.match(name) is not None


def remote_environment(
    url: str,
    *,
    local: bool,
    named_by_site: bool = False,
    credential: str | None = None,
    resolve: Resolve = system_resolve,
) -> dict[str, str]:
    """Environment of a git process that connects to `url`.

    Args:
        url: As `check_url` takes it.
        local: Likewise; such a server may be on a private network.
        named_by_site: The site names the server.
        credential: Password or `user:password` for the URL's host.
        resolve: Addresses of a name.

    Raises:
        UsageError: The URL is not one that may be fetched from.
        ConfigError: Its host resolves to an address that may not be dialled.
        StorageError: Its host has no address now.
    """
    protocol = check_url(url, local=local)
    if protocol == "file":
        return git_environment(protocol)
    origin = read_origin(url, key="the repository", named_by_site=local or named_by_site)
    addresses = ",".join(
        f"[{address}]" if ":" in address else address for address in checked_addresses(origin, resolve)
    )
    pinned = f"{origin.host}:{origin.port}:{addresses}"
    return git_environment(protocol, url=url, credential=credential, pinned=pinned)


def git_environment(
    protocol: str = "", *, url: str = "", credential: str | None = None, pinned: str = ""
) -> dict[str, str]:
    """Environment of git without the user's configuration: one protocol, and a credential for the host of `url`.

    `pinned` is `HOST:PORT:ADDRESS,...`, the addresses at which that host is dialled.
    """
    settings = dict(_SETTINGS)
    if pinned:
        settings["http.curloptResolve"] = pinned
    if credential is not None:
        login = credential if ":" in credential else f"gangline:{credential}"
        parts = urlsplit(url)
        settings[f"http.{parts.scheme}://{parts.netloc}/.extraHeader"] = (
            f"Authorization: Basic {base64.b64encode(login.encode()).decode()}"
        )
    return {**inherited_environment(_KEPT), **_ENVIRONMENT, "GIT_ALLOW_PROTOCOL": protocol, **_as_variables(settings)}


def run_remote_git(
    folder: Path, *arguments: str, environ: Mapping[str, str] | None = None, limits: ProcessLimits = LIMITS
) -> GitResult:
    """git without the user's configuration; `environ` is of `remote_environment`, None: no other server is reached.

    Raises:
        GitTimeout, OutputTooLarge, ProcessStopped: As `run_git`.
    """
    return run_git(folder, *arguments, environ=environ or git_environment(), limits=limits)


def refspecs(refs: Sequence[str]) -> list[str]:
    """Each ref to a name of ours: a branch `a` that went and a branch `a/b` that came do not meet in one folder."""
    return [f"+{ref}:refs/gangline/fetched/{sha256(ref.encode()).hexdigest()[:20]}" for ref in map(check_ref, refs)]


def kept_ref(commit: str) -> str:
    """Ref of a mirror that keeps `commit` from being collected."""
    return f"refs/gangline/kept/{commit}"


def _as_variables(settings: Mapping[str, str]) -> dict[str, str]:
    variables = {"GIT_CONFIG_COUNT": str(len(settings))}
    for place, (key, value) in enumerate(settings.items()):
        variables |= {f"GIT_CONFIG_KEY_{place}": key, f"GIT_CONFIG_VALUE_{place}": value}
    return variables


def _refused(found: str) -> str:
    return (
        "wanted a repository over https (http on this machine alone, a folder where an administrator named it),"
        f" found {found}"
    )
