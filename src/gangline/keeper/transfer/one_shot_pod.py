"""Pod that runs one module of gangline once, with the code of a commit.

    python -m gangline.keeper.transfer.one_shot_pod fetch   downloads the bundle of GANGLINE_BUNDLE_FILE
    python -m gangline.keeper.transfer.one_shot_pod         runs the module and prints its result to stdout

They run in two containers, so that model code never sees the URL. Both use the shared folder GANGLINE_HOME.
"""

import hashlib
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from gangline.errors import GanglineError, IntegrityError, StorageError
from gangline.http.client import HttpClient, TimeLimits
from gangline.http.retry import Deadline, NotCarriedOut, RequestFailed, retry
from gangline.spec.gang.one_shot_pod import (
    CALL,
    CODE,
    FILES,
    MOST_STDERR_BYTES,
    MOST_STDOUT_BYTES,
    CodeBundle,
    ModuleCall,
    ModuleOutput,
    to_lines,
)
from gangline.spec.python_environment import code_folders, python_path
from gangline.storage.objects.code_layer import unpack

FETCH_SECONDS = 120.0
"""Time to retry while the store fails."""
_LIMITS = TimeLimits(connect_seconds=10.0, silence_seconds=60.0)
_CHUNK_BYTES = 2**20


def main(arguments: list[str]) -> int:
    """Run one of the two steps; returns 0 or an exit code, with the error on stderr."""
    environ = os.environ
    home = Path(environ["GANGLINE_HOME"])
    try:
        if arguments == ["fetch"]:
            fetch(CodeBundle.from_json(Path(environ["GANGLINE_BUNDLE_FILE"]).read_bytes()), home)
            return 0
        output = run(ModuleCall.from_json((home / CALL).read_bytes()), home, environ)
    except GanglineError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    for line in to_lines(output):
        sys.stdout.write(f"{line}\n")
    return 0


def fetch(bundle: CodeBundle, home: Path) -> None:
    """Unpack the bundle below `home`, the code in the folder where the module starts.

    Raises:
        StorageError: The store keeps failing, or refuses the URL.
        IntegrityError: The bundle is not the one that the driver uploaded.
    """
    path = home / "bundle.tar"
    try:
        found = retry(lambda: _download(bundle.url, path), deadline=Deadline(FETCH_SECONDS))
    except RequestFailed as error:
        raise StorageError(f"bundle: no answer from the store in {FETCH_SECONDS:.0f} s: {error}") from error
    if found != bundle.sha256:
        raise IntegrityError(f"bundle: wanted digest {bundle.sha256[:12]}, found {found[:12]}: it was changed")
    with tarfile.open(path) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
        tar.extractall(home)  # noqa: S202  # verified by digest above
    path.unlink()
    (home / FILES).mkdir(exist_ok=True)
    code = home / CODE
    if code.exists():
        unpack(code.read_bytes(), home / FILES / "code")
        code.unlink()
    else:
        (home / FILES / "code").mkdir()


def run(call: ModuleCall, home: Path, environ: Mapping[str, str]) -> ModuleOutput:
    """Run the module until it ends or its time limit is reached."""
    code, empty_home = home / FILES / "code", home / "home"
    empty_home.mkdir(exist_ok=True)
    environ = {**environ, "OMP_NUM_THREADS": "1", **call.env, "HOME": str(empty_home), "PYTHONHASHSEED": "0",
               "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
    environ["PYTHONPATH"] = python_path(code_folders(code, call.path), environ.get("PYTHONPATH"))
    out, err = home / "stdout", home / "stderr"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", call.module, *call.arguments], cwd=code, env=environ, stdin=subprocess.DEVNULL,
            stdout=stdout, stderr=stderr,
        )  # fmt: skip
        try:
            exit_code: int | None = process.wait(call.seconds)
        except subprocess.TimeoutExpired:
            exit_code = None
        process.kill()  # its child processes end with the container
        process.wait()
    exit_code = 128 - exit_code if exit_code is not None and exit_code < 0 else exit_code
    return ModuleOutput(exit_code=exit_code, stdout=_head(out), stderr=_tail(err))


def _download(url: str, path: Path) -> str:
    """Download a file; returns its digest."""
    digest = hashlib.sha256()
    with HttpClient(limits=_LIMITS).open("GET", url) as answer, path.open("wb") as file:
        if answer.status >= 500:
            raise NotCarriedOut(f"the store answered {answer.status}")
        if answer.status != 200:
            raise StorageError(
                f"bundle: the store answered {answer.status}: {next(answer.pieces(300), b'').decode(errors='replace')}"
            )
        for chunk in answer.pieces(_CHUNK_BYTES):
            digest.update(chunk)
            file.write(chunk)
    return digest.hexdigest()


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MOST_STDOUT_BYTES)


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - MOST_STDERR_BYTES))
        return file.read(MOST_STDERR_BYTES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
