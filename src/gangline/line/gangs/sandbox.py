"""Sandbox of a commit's code, from the settings of the site, the repository and the user's environment."""

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from gangline.errors import ConfigError
from gangline.launch.sandbox import Sandbox, SandboxEngine, find_engine
from gangline.launch.sandbox.environment import is_secret
from gangline.launch.sandbox.host_paths import covers_of, hidden_paths, home_paths
from gangline.launch.sandbox.module_runner import ModuleRunner
from gangline.launch.sandbox.process_runner import ProcessRunner
from gangline.launch.sandbox.view import holds_any, is_there
from gangline.line.request.trust import FOLDER, KeptHome
from gangline.spec.config.secrets import is_reference, parse_reference
from gangline.spec.config.site import Site
from gangline.spec.gang.driver_orders import CACHES
from gangline.spec.record import Trust
from gangline.storage import site_paths

_MISSED = re.compile(r"(?:FileNotFoundError|PermissionError|No such file or directory).*?['\"](/[^'\"]+)['\"]")
_USERS_FOLDERS = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR",
                  "TMPDIR", "GANGLINE_CACHE", "UV_CACHE_DIR", "DOCKER_CONFIG", "GNUPGHOME", "CREDENTIALS_DIRECTORY",
                  "JENKINS_HOME", "JENKINS_AGENT_WORKDIR", "WORKSPACE_TMP")  # fmt: skip
_USERS_FILES = ("KUBECONFIG", "SSH_AUTH_SOCK", "NETRC", "AWS_CONFIG_FILE", "PIP_CONFIG_FILE", "BUILDKIT_TLS_DIR")
"""Variables that name secret files, besides those whose names show that they hold a secret."""


def sandbox_of(
    repo: Path, trust: Trust, *, site: Site, environ: Mapping[str, str], home: KeptHome | None = None
) -> Sandbox:
    """The sandbox for code of a commit of `trust` on this machine; `home` is kept if the site and the engine keep it.

    Raises:
        ConfigError: `sandbox.read` names a folder that contains a hidden path.
    """
    folder, hidden, store = (
        site_paths.home(repo).resolve(),
        tuple(_hidden(repo, site, environ)),
        _store_folder(repo, site),
    )
    probed = (folder, Path(tempfile.gettempdir()), *([store] if store else []))
    engine = find_engine(site.sandbox.mode, wide=trust == "own", places=probed)
    return Sandbox(
        engine=engine,
        trust=trust,
        required=site.sandbox.mode == "required",
        hidden=hidden,
        shown=tuple(_shown_folders(site, (*hidden_paths(), *hidden))),
        home=folder / FOLDER / home.path if home and _is_kept(home, engine, site) else None,
    )


def _is_kept(home: KeptHome, engine: SandboxEngine, site: Site) -> bool:
    """False where the site wants empty ones, or other own commits could write into that of runs which may publish."""
    return site.sandbox.home == "kept" and (engine.hides or not home.may_publish)


def local_runner(repo: Path, *, site: Site, environ: Mapping[str, str], home: KeptHome | None = None) -> ModuleRunner:
    """A runner for model code of commits of `repo` on this machine; own commits have `home`."""

    def sandbox(trust: Trust) -> Sandbox:
        return sandbox_of(repo, trust, site=site, environ=environ, home=home if trust == "own" else None)

    return ProcessRunner(sandbox)


def hidden_path_in(lines: Sequence[str], sandbox: Sandbox) -> str:
    """Sentence about a path, in the last lines of its log, that a program missed because its sandbox hides it."""
    if sandbox.is_unconfined or not sandbox.is_own or not sandbox.engine.hides:
        return ""
    found = (match[1] for line in reversed(lines) if (match := _MISSED.search(line)))
    path = next((each for each in found if is_there(Path(each))), None)
    return f"; {path} exists but is hidden from model code: sandbox.read in site.toml shows it" if path else ""


def _shown_folders(site: Site, hidden: tuple[Path, ...]) -> Iterator[Path]:
    for each in site.sandbox.read:
        path = Path(each)
        found = next((secret for secret in hidden if holds_any(path.resolve(), [secret.resolve()])), None)
        if found is not None:
            raise ConfigError(
                f"site.toml: sandbox.read: wanted folders without secrets, found {each}, which has {found}"
            )
        yield path


def _hidden(repo: Path, site: Site, environ: Mapping[str, str]) -> Iterator[Path]:
    """Paths of this user, repository and site that code of a commit must not read."""
    for name in _USERS_FOLDERS:
        yield from home_paths(environ.get(name, ""))
    for name, value in environ.items():
        if name in _USERS_FILES or is_secret(name):
            paths = (Path(part) for part in value.split(":") if part.startswith("/") and Path(part) != Path("/"))
            yield from (cover for path in paths for cover in covers_of(path))
    if site_file := environ.get("GANGLINE_SITE"):
        yield Path(site_file)
    yield site_paths.home(repo)
    yield from _git_folders(repo)
    if (store := _store_folder(repo, site)) is not None:
        yield from (store, store.parent / "serve")
    yield from _service_folders(repo, site)
    if site.cache.path is not None:
        yield Path(site.cache.path, CACHES)
    yield from (cover for file in _secret_files(site) for cover in covers_of(Path(file).expanduser()))


def _store_folder(repo: Path, site: Site) -> Path | None:
    url = site_paths.store_url(repo, site)
    return Path(url.removeprefix("file:")) if url.startswith("file:") else None


def _git_folders(repo: Path) -> Iterator[Path]:
    """Git folder of the repository; of a linked work tree also that of the main one."""
    for folder in (repo, *repo.parents):
        git = folder / ".git"
        if git.is_dir():
            yield git
            return
        if git.is_file():
            own = (folder / git.read_text("utf-8", "replace").removeprefix("gitdir:").strip()).resolve()
            yield own
            yield from (parent for parent in own.parents if parent.name == ".git")
            return


def _service_folders(repo: Path, site: Site) -> Iterator[Path]:
    """Folders of the service that this site configures, and of the one whose clone `repo` is (`git.clones`)."""
    for each in (site.serve.home, site.serve.database, *site.serve.repositories.values()):
        if each and Path(each).expanduser().is_absolute() and Path(each).expanduser() != repo:
            yield Path(each).expanduser()
    if repo.parent.name == "commits" and len(repo.parents) > 3:
        clones = repo.parents[2]
        yield clones.parent if clones.name == "clones" else clones


def _secret_files(value: Any) -> Iterator[str]:
    """Paths of all `secret:file:` references of the site."""
    if isinstance(value, str):
        if is_reference(value) and (reference := parse_reference(value)).kind == "file":
            yield reference.name
    elif is_dataclass(value):
        for field in fields(value):
            yield from _secret_files(getattr(value, field.name))
    elif isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _secret_files(each)
