"""Pipeline file of a line, compiled from its definitions root: equal sources, image, settings and kfp give equal bytes.

Between two commits only `image:` differs. Comments in components are part of the file, as kfp copies their source. A
definitions root holds `pipelines/` and `components/`: that of the model repository, else the checkout that this
package was imported from, else the copy in the wheel. Only the worker process imports it.
"""

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import gangline
from gangline.errors import ConfigError
from gangline.kfp.task_config import secret_names, site_for_tasks
from gangline.kfp.worker import WorkerRequest
from gangline.kfp.worker_process import worker_process
from gangline.spec.config.site import LimitsTable, Site
from gangline.spec.record import Record

_PACKAGE: Path = Path(str(gangline.__file__)).parent
PIPELINE = "train_line"


def find_root(repo: Path | None = None) -> Path:
    """Definitions root for the line of `repo`.

    Raises:
        ConfigError: There is none.
    """
    candidates = (*([repo] if repo else []), _PACKAGE.parents[1], _PACKAGE / "definitions")
    root = next((candidate for candidate in candidates if is_root(candidate)), None)
    if root is None:
        looked = ", ".join(map(str, candidates))
        raise ConfigError(f"wanted a folder with pipelines/{PIPELINE}.py and components/, found none among {looked}")
    return root


def is_root(folder: Path) -> bool:
    """Whether a folder holds the definitions of a pipeline."""
    return (folder / "pipelines" / f"{PIPELINE}.py").is_file() and (folder / "components").is_dir()


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
        image: Image of every task, with `@sha256:`.
        run_seconds: Time limit of the pipeline on a server.
        secrets: Kubernetes secrets that tasks mount.
        environ: Of the user; the child gets part of it.

    Raises:
        ConfigError: The image has no digest, or the definitions do not compile; with the last line of their log.
    """
    if not _DIGEST.fullmatch(image):
        raise ConfigError(f"wanted an image by digest, NAME@sha256:<64 hex digits>, found {image!r}; push it first")
    with tempfile.TemporaryDirectory(prefix="gangline-kfp-") as name:
        folder = Path(name)
        request = WorkerRequest(
            action="compile", root=str(root), image=image, run_seconds=int(run_seconds), secrets=tuple(secrets),
            folder=name,
        )  # fmt: skip
        log = folder / "log"
        with worker_process(request, environ=environ or {}, log=log) as process:
            code = process.wait()
        if code:
            raise ConfigError(f"the pipeline of {root} does not compile: {last_log_line(log)}")
        return (folder / "pipeline.yaml").read_bytes()


def compile_run(repo: Path, record: Record, *, site: Site, environ: Mapping[str, str] | None = None) -> bytes:
    """The pipeline file that a server gets for `record`.

    Raises:
        ConfigError: There is no image for its tasks, or as `compile_line`.
    """
    image = site.kfp.image or record.inputs.image
    if image is None:
        raise ConfigError(
            f"kfp.image: wanted an image for the tasks of {record.run.id}, found none in site.toml and none built;"
            " set one with @sha256:"
        )
    mounted = secret_names(site_for_tasks(site))
    return compile_line(find_root(repo), image, run_seconds=site.limits.run_seconds, secrets=mounted, environ=environ)


def last_log_line(log: Path) -> str:
    """Last line of a log, for a message."""
    lines = [line for line in log.read_text("utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "its log is empty"
