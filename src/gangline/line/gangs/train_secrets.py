"""Secrets in `[train.env]`: which references a line may name, which runs get them, and their values.

Everybody who may push a branch writes a line, and the driver's environment holds passwords. Therefore the site lists
the references that lines may name, and commits of forks get none.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from gangline.errors import ConfigError, IntegrityError
from gangline.line.request.trust import Rights
from gangline.spec.config.secrets import VARIABLE, parse_reference, references_of, resolve_secret
from gangline.spec.config.site import Site
from gangline.spec.record import Record


def secret_names(record: Record, env: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the gang's secrets that become variables; a fork's gang has none."""
    if record.commit.trust != "own":
        return ()
    return tuple(f"{VARIABLE}{name}" for name in sorted(references_of(env)))


def require_secrets(env: Mapping[str, str], site: Site, environ: Mapping[str, str]) -> None:
    """Raise ConfigError unless the site allows every secret of the line and has it; never shows a value."""
    for name, reference in sorted(references_of(env).items()):
        _resolve(name, reference, site, environ)


def refused_references(env: Mapping[str, str], site: Site, environ: Mapping[str, str]) -> str:
    """Why `require_secrets` would refuse a run, for a preview; empty if it would not."""
    try:
        require_secrets(env, site, environ)
    except ConfigError as error:
        return str(error)
    return ""


def read_secret(name: str, rights: Rights, site: Site, environ: Mapping[str, str]) -> bytes:
    """Value of a variable, by its name in the gang's secrets.

    Raises:
        IntegrityError: The run with these rights names no such secret; a fork's run names none.
        ConfigError: The site does not allow it, or it is not set.
    """
    variable = name.removeprefix(VARIABLE)
    reference = rights.train_secrets.get(variable)
    if reference is None:
        raise IntegrityError(f"a gang asks for the secret {variable}, which its run does not name in [train.env]")
    return _resolve(variable, reference, site, environ).encode()


def left_out_variables(record: Record, env: Mapping[str, str]) -> str:
    """Sentence about the variables that a fork's gang does not get; empty if there are none."""
    names = sorted(references_of(env)) if record.commit.trust != "own" else []
    return f"{', '.join(names)} not set: commits of forks get no secrets" if names else ""


def _resolve(name: str, reference: str, site: Site, environ: Mapping[str, str]) -> str:
    key = f"line.toml: train.env.{name}"
    parsed = parse_reference(reference)
    text = f"{parsed.kind}:{parsed.name}"
    if not any(fnmatchcase(text, pattern) for pattern in site.secrets.train_env):
        raise ConfigError(
            f"{key}: wanted a secret that this site allows in lines, found {reference}; in site.toml,"
            f' [secrets] train_env = ["{text}"] allows it'
        )
    try:
        return resolve_secret(reference, environ)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error
