"""The pipeline file of a line: the same sources, image, settings and kfp give the same bytes.

Between two commits only `image:` differs. Comments in components are part of the file, as kfp copies their source.
"""

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from gangline.errors import ConfigError
from gangline.line.kfp.child import Request
from gangline.line.kfp.definitions import find_root
from gangline.line.kfp.secrets import for_tasks, secret_names
from gangline.line.kfp.supervise import child
from gangline.spec.record import Record
from gangline.spec.site import LimitsTable, Site

_DIGEST = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")


def compile_line(
    root: Path,
    image: str,
    *,
    run_seconds: float = LimitsTable().run_seconds,
    secrets: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> bytes:
    """YAML of the pipeline that `root` defines.

    Args:
        root: Definitions root, from `find_root`.
        image: Of every task, with `@sha256:`.
        run_seconds: After which a server stops the pipeline.
        secrets: Kubernetes secrets that tasks mount.
        environ: Of the user; the child sees little of it.

    Raises:
        ConfigError: The image has no digest, or the definitions do not compile; their own words are shown.
    """
    if not _DIGEST.fullmatch(image):
        raise ConfigError(
            f"wanted an image by digest, NAME@sha256:<64 hex digits>, found {image!r}; push it, then name it"
        )
    with tempfile.TemporaryDirectory(prefix="gangline-kfp-") as name:
        folder = Path(name)
        request = Request(
            action="compile", root=str(root), image=image, run_seconds=int(run_seconds), secrets=tuple(secrets),
            folder=name,
        )  # fmt: skip
        log = folder / "log"
        with child(request, environ=environ or {}, log=log) as process:
            code = process.wait()
        if code:
            raise ConfigError(f"the pipeline of {root} does not compile: {last_words(log)}")
        return (folder / "pipeline.yaml").read_bytes()


def compile_run(repo: Path, record: Record, *, site: Site, environ: Mapping[str, str] | None = None) -> bytes:
    """The very file that a server is given for `record`.

    Raises:
        ConfigError: There is no image for its tasks; or as `compile_line`.
    """
    image = site.kfp.image or record.inputs.image
    if image is None:
        raise ConfigError(
            f"kfp.image: wanted an image for the tasks of {record.run.id}, found none in site.toml and none built;"
            " name one with @sha256:"
        )
    mounted = secret_names(for_tasks(site))
    return compile_line(find_root(repo), image, run_seconds=site.limits.run_seconds, secrets=mounted, environ=environ)


def last_words(log: Path) -> str:
    """What a child said last, for a message."""
    lines = [line for line in log.read_text("utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "it said nothing"
