"""Secrets in `[train.env]`: which references a line may name, who gets them, where their values come from.

The line of a commit names them, and whoever may push a branch writes that line; the driver's environment holds
passwords. So the site lists the references that lines may name, and commits of forks get none.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from gangline.errors import ConfigError, IntegrityError
from gangline.line.request.trust import Rights
from gangline.spec.config.secrets import VARIABLE, parse_reference, references_of, resolve_secret
from gangline.spec.config.site import Site
from gangline.spec.record import Record


def secret_names(record: Record, env: Mapping[str, str]) -> tuple[str, ...]:
    """Of the gang's secrets, those that become variables; a fork's gang has none."""
    if record.commit.trust != "own":
        return ()
    return tuple(f"{VARIABLE}{name}" for name in sorted(references_of(env)))


def require_secrets(env: Mapping[str, str], site: Site, environ: Mapping[str, str]) -> None:
    """Every secret of the line may be named here, and is there.

    Raises:
        ConfigError: One is not; its name, never its value.
    """
    for name, reference in sorted(references_of(env).items()):
        _resolve(name, reference, site, environ)


def refused_references(env: Mapping[str, str], site: Site, environ: Mapping[str, str]) -> str:
    """Why `demand_secrets` would refuse a run, for who only asks; empty: it would not."""
    try:
        require_secrets(env, site, environ)
    except ConfigError as error:
        return str(error)
    return ""


def read_secret(name: str, rights: Rights, site: Site, environ: Mapping[str, str]) -> bytes:
    """The value of a variable, by its name among the gang's secrets.

    Raises:
        IntegrityError: The run of these rights names no such secret: a fork's names none.
        ConfigError: The site does not let lines name it, or it is not there.
    """
    variable = name.removeprefix(VARIABLE)
    reference = rights.train_secrets.get(variable)
    if reference is None:
        raise IntegrityError(f"a gang asks for the secret {variable}, which its run does not name in [train.env]")
    return _resolve(variable, reference, site, environ).encode()


def left_out_variables(record: Record, env: Mapping[str, str]) -> str:
    """What a fork's gang goes without, for people; empty: nothing."""
    names = sorted(references_of(env)) if record.commit.trust != "own" else []
    return f"{', '.join(names)} not set: commits of forks get no secrets" if names else ""


def _resolve(name: str, reference: str, site: Site, environ: Mapping[str, str]) -> str:
    key = f"line.toml: train.env.{name}"
    asked = parse_reference(reference)
    text = f"{asked.kind}:{asked.name}"
    if not _is_allowed(text, site.secrets.train_env):
        raise ConfigError(
            f"{key}: wanted a secret that this site lets lines name, found {reference}; in site.toml,"
            f' [secrets] train_env = ["{text}"] allows it'
        )
    try:
        return resolve_secret(reference, environ)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error


def _is_allowed(text: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)
