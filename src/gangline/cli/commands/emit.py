"""`gangline emit`: the files that a launch target, a pipelines server or a Jenkins would be given.

The Jenkins files are in `jenkins/` of the checkout that this package was imported from, or in its wheel.
"""

from pathlib import Path
from typing import Annotated, cast, get_args

import typer

import gangline
from gangline.cli.options import HERE, RepoOption, SiteOption
from gangline.cli.output import print_or_write
from gangline.cli.terminal import say
from gangline.cli.workspace import open_workspace
from gangline.errors import ConfigError, StorageError, UsageError
from gangline.line.gangs.manifests import GangKind, emit_gang

_PACKAGE_FOLDER = Path(str(gangline.__file__)).parent
_PIPELINE = "vars/gangline.groovy"
_JENKINS_SUFFIXES = {".groovy", ".txt", ".yaml"}


def pipeline() -> str:
    """Files that are the same for every model repository."""
    return (_jenkins_folder() / _PIPELINE).read_text("utf-8")


def jenkins_files() -> dict[str, str]:
    """Path to text, all below `jenkins/`: the library's repository is any that holds this folder."""
    folder = _jenkins_folder()
    paths = sorted(path for path in folder.rglob("*") if path.suffix in _JENKINS_SUFFIXES)
    return {f"jenkins/{path.relative_to(folder).as_posix()}": path.read_text("utf-8") for path in paths}


def _jenkins_folder() -> Path:
    candidates = (_PACKAGE_FOLDER.parents[1] / "jenkins", _PACKAGE_FOLDER / "definitions" / "jenkins")
    path = next((candidate for candidate in candidates if (candidate / _PIPELINE).is_file()), None)
    if path is None:
        looked = " or ".join(map(str, candidates))
        raise ConfigError(f"wanted the files for Jenkins in {looked}, found none; reinstall gangline")
    return path


KINDS = (*get_args(GangKind), "kfp", "kserve", "jenkins")


def command(
    kind: Annotated[str, typer.Argument(help="Kind of object, one of " + ", ".join(KINDS) + ".", metavar="KIND")],
    run: Annotated[
        str | None,
        typer.Argument(
            help="Run id, or the beginning of one; for kserve MODEL, MODEL@ALIAS or MODEL/VERSION.",
            metavar="RUN",
            show_default="the newest run",
        ),
    ] = None,
    *,
    cluster: Annotated[
        Path | None, typer.Option("--cluster", help="Read facts that doctor --cluster wrote; no server is contacted.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Let the API server judge the objects by dry run.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write; for jenkins and kserve a folder.", show_default="stdout"),
    ] = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
) -> None:
    """Print the very objects that a run creates, secrets as names; or the pipeline that drives it.

    kserve is about a published version: the InferenceService that serves it, and the site of its init container.
    jenkins is about no run, and for the administrator of a Jenkins: the pipeline that builds every repository, and with
    --out the whole library, pods and settings of the controller.
    """
    if kind not in KINDS:
        raise UsageError(f"wanted one of {', '.join(KINDS)}, found {kind!r}")
    if kind == "jenkins":
        if run or check or cluster:
            raise UsageError(
                "what a Jenkins is given is the same for every run; wanted: gangline emit jenkins --out FOLDER"
            )
        _emit_jenkins(out)
        return
    if kind == "kserve":
        _emit_kserve(run, out, repo=repo, site=site, check=check, cluster=cluster)
        return
    if (check and kind in ("kfp", "runtime")) or (cluster and kind == "kfp"):
        raise UsageError(f"--check and --cluster are about the objects of a gang; leave them out for {kind}")
    workspace = open_workspace(repo, site)
    record = workspace.run(run)
    if kind == "kfp":
        from gangline.kfp.compiler import compile_run

        text = compile_run(workspace.repo, record, site=workspace.site).decode()
    else:
        text = emit_gang(
            workspace.repo,
            record,
            cast(GangKind, kind),
            site=workspace.site,
            environ=workspace.environ,
            facts_file=cluster,
            check=check,
        )
    print_or_write(text, out)


def _emit_kserve(
    target: str | None, out: Path | None, *, repo: Path, site: Path | None, check: bool, cluster: Path | None
) -> None:
    from gangline.line.results.kserve_manifest import emit_inference_service

    if target is None or cluster is not None:
        raise UsageError("wanted gangline emit kserve MODEL[@ALIAS] [--out FOLDER] [--check]")
    workspace = open_workspace(repo, site)
    text = emit_inference_service(
        target, store=workspace.store, site=workspace.site, environ=workspace.environ, check=check
    )
    name = target.replace("@", "-").replace("/", "-")
    print_or_write(text, out if out is None or str(out) == "-" else out / f"{name}.yaml")


def _emit_jenkins(out: Path | None) -> None:

    if out is None:
        say(pipeline(), nl=False)
        return
    files = jenkins_files()
    changed = [path for path, text in files.items() if _differs(out / path, text)]
    if changed:
        raise UsageError(f"{', '.join(changed)} in {out} say something else; move them away, or emit to another folder")
    try:
        for path, text in files.items():
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            (out / path).write_text(text, "utf-8")
            say(out / path)
    except OSError as error:
        raise StorageError(f"wanted to write {out}, found: {error.strerror}; try another place") from error


def _differs(path: Path, text: str) -> bool:
    return path.exists() and (not path.is_file() or path.read_text("utf-8") != text)
