"""Builds the servers of the tests outside the tree: `make tools`, or `python -m tests.tools [NAME ...]`.

Go programs come from pinned modules, programs of Python from hashed locks, each into an environment of its own. What is
there at its version is left alone, so running again is free; interrupted, it goes on. `GANGLINE_TOOLS` names another
folder than `~/.cache/gangline/tools/bin`.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Tool:
    name: str
    package: str
    version: str
    workshop: Path | None = None
    """Folder of a go.mod and go.sum of its own, for a program that needs replaced modules."""
    tags: str = ""

    def command(self, staged: Path) -> list[str]:
        """Leaves the program at `staged/name`; runs there."""
        if self.workshop is None:
            return ["go", "install", f"{self.package}@{self.version}"]
        options = ["-mod=mod", "-tags", self.tags, "-ldflags", "-s -w"]
        return ["go", "build", *options, "-o", str(staged / self.name), self.package]

    @property
    def environment(self) -> dict[str, str]:
        return {"CGO_ENABLED": "0" if self.workshop is None else "1", "GOFLAGS": "-trimpath"}

    def program(self, folder: Path) -> Path:
        return folder / self.name

    def is_there(self, folder: Path) -> bool:
        return installed_version(self.program(folder), self.package) == self.version

    def build(self, folder: Path) -> subprocess.CompletedProcess[str]:
        """Compile in a folder beside; the finished program gets its name in one step."""
        staged = folder / f".{self.name}.building"
        staged.mkdir(exist_ok=True)
        if self.workshop is not None:
            shutil.copytree(self.workshop, staged, dirs_exist_ok=True)
        environment = {**os.environ, "GOBIN": str(staged), **self.environment}
        ended = subprocess.run(
            self.command(staged), cwd=staged, env=environment, capture_output=True, text=True, check=False
        )
        if ended.returncode == 0:
            (staged / self.name).replace(self.program(folder))
            shutil.rmtree(staged)
        return ended


@dataclass(frozen=True)
class PythonTool:
    name: str
    version: str
    lock: Path

    @property
    def digest(self) -> str:
        """What the environment was made from: the lock, and the Python that made it."""
        return sha256(self.lock.read_bytes() + sys.version.encode()).hexdigest()

    def program(self, folder: Path) -> Path:
        return folder / self.name / "bin" / self.name

    def is_there(self, folder: Path) -> bool:
        stamp = folder / self.name / "installed"
        return stamp.is_file() and stamp.read_text() == self.digest

    def build(self, folder: Path) -> subprocess.CompletedProcess[str]:
        """Make the environment anew; its stamp is written last."""
        place, uv = folder / self.name, Path(sys.executable).with_name("uv")
        shutil.rmtree(place, ignore_errors=True)
        install = [uv, "pip", "install", "--quiet", "--python", place / "bin" / "python", "--compile-bytecode"]
        for command in (
            [uv, "venv", "--quiet", "--python", sys.executable, place],
            [*install, "--require-hashes", "--no-deps", "-r", self.lock],
        ):
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            if ended.returncode:
                return ended
        (place / "installed").write_text(self.digest)
        return ended


@dataclass(frozen=True)
class JavaTool:
    """A class of our own over pinned jars, which Maven fetches and whose digests a list holds."""

    name: str
    version: str
    workshop: Path
    """Folder of its pom.xml, its class and `jars.sha256`."""

    @property
    def digest(self) -> str:
        return sha256(b"".join(path.read_bytes() for path in sorted(self.workshop.iterdir()))).hexdigest()

    def program(self, folder: Path) -> Path:
        return folder / self.name / f"{self.name.capitalize()}.class"

    def is_there(self, folder: Path) -> bool:
        stamp = folder / self.name / "installed"
        return stamp.is_file() and stamp.read_text() == self.digest

    def build(self, folder: Path) -> subprocess.CompletedProcess[str]:
        """Fetch the jars, hold them against the list, compile; the stamp is written last."""
        place = folder / self.name
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.workshop, place)
        fetch = ["mvn", "-q", "-B", f"-DoutputDirectory={place / 'jars'}", f"{_COPY}:copy-dependencies"]
        source = place / f"{self.name.capitalize()}.java"
        for command in (
            fetch,
            ["sha256sum", "--quiet", "--strict", "--check", place / "jars.sha256"],
            ["javac", "-cp", f"{place / 'jars'}/*", source],
        ):
            cwd = place / "jars" if command[0] == "sha256sum" else place
            ended = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
            if ended.returncode:
                return subprocess.CompletedProcess(command, ended.returncode, "", ended.stderr + ended.stdout)
        listed = len((place / "jars.sha256").read_text().splitlines())
        if (found := len(list((place / "jars").iterdir()))) != listed:
            return subprocess.CompletedProcess(fetch, 1, "", f"wanted {listed} jars, found {found}")
        (place / "installed").write_text(self.digest)
        return ended


_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
TOOLS = (
    Tool("minio", "github.com/minio/minio", "v0.0.0-20260212201848-7aac2a2c5b7c"),
    Tool("versitygw", "github.com/versity/versitygw/cmd/versitygw", "v1.8.0"),
    Tool("gitea", "code.gitea.io/gitea", "v1.25.0", HERE / "gitea", "sqlite sqlite_unlock_notify"),
    PythonTool("mlflow", "3.17.2", HERE / "mlflow" / "requirements.txt"),
    PythonTool("optuna-dashboard", "0.21.0", HERE / "optuna-dashboard" / "requirements.txt"),
    PythonTool("tensorboard", "2.21.0", HERE / "tensorboard" / "requirements.txt"),
    JavaTool("hdfs", "3.4.1", HERE / "hdfs"),
)
_WITHOUT_GO = """\
tools  Go is not on the PATH; it builds MinIO, versitygw and Gitea for the tests.
       Install it (Debian, Ubuntu: apt install golang; any system: go.dev/dl), then run make tools again.
       Without it nothing is lost but the tests marked `tools`: they skip.
"""
_WITHOUT_JAVA = """\
tools  a JDK or Maven is not on the PATH; they build HDFS for the tests.
       Install both (Debian, Ubuntu: apt install openjdk-17-jdk-headless maven), then run make tools again.
       Without them nothing is lost but the tests of HDFS: they skip.
"""
_OF_JAVA = ("java", "javac", "mvn")


def main(*names: str) -> int:
    """Build the tools of these names, or all of them; the exit code."""
    folder = tools_folder()
    wanted = [tool for tool in TOOLS if not names or tool.name in names]
    missing = [tool for tool in wanted if not tool.is_there(folder)]
    for tool in wanted:
        if tool not in missing:
            say(f"{tool.name} {tool.version} is there: {tool.program(folder)}")
    code = 0
    if shutil.which("go") is None and any(isinstance(tool, Tool) for tool in missing):
        sys.stderr.write(_WITHOUT_GO)
        code, missing = 10, [tool for tool in missing if not isinstance(tool, Tool)]
    if any(isinstance(tool, JavaTool) for tool in missing) and not all(map(shutil.which, _OF_JAVA)):
        sys.stderr.write(_WITHOUT_JAVA)
        code, missing = 10, [tool for tool in missing if not isinstance(tool, JavaTool)]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
    return max([code, *(build(tool, folder) for tool in missing)])


def tools_folder() -> Path:
    """Where the servers are kept; the fixtures look there, too."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("GANGLINE_TOOLS") or cache / "gangline" / "tools" / "bin")


def installed_version(program: Path, package: str) -> str | None:
    """Version of `package` that Go wrote into `program`; None where there is none, or half of one."""
    if not program.is_file() or shutil.which("go") is None:
        return None
    reported = subprocess.run(["go", "version", "-m", str(program)], capture_output=True, text=True, check=False).stdout
    words = [line.split() for line in reported.splitlines()]
    modules = {line[1]: line[2] for line in words if line[:1] in (["mod"], ["dep"]) and len(line) > 2}
    return next((version for module, version in modules.items() if f"{package}/".startswith(f"{module}/")), None)


def build(tool: Tool | PythonTool | JavaTool, folder: Path) -> int:
    """Build one tool, with a line every 10 seconds."""
    say(f"{tool.name} {tool.version}: downloading and building, up to 6 minutes on 2 cores the first time")
    began = time.monotonic()
    done = threading.Event()
    ticker = threading.Thread(target=tick, args=(tool.name, began, done), daemon=True)
    ticker.start()
    try:
        ended = tool.build(folder)
    finally:
        done.set()
        ticker.join()
    if ended.returncode:
        sys.stderr.write(f"tools  {tool.name} did not build (code {ended.returncode}):\n{ended.stderr[-2000:]}\n")
        return 30
    say(f"{tool.name} ready after {time.monotonic() - began:.0f} s: {tool.program(folder)}")
    return 0


def tick(name: str, began: float, done: threading.Event) -> None:
    while not done.wait(10):
        say(f"{name}: {time.monotonic() - began:.0f} s")


def say(text: str) -> None:
    print(f"tools  {text}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("tools  interrupted; run make tools again, it goes on from what was downloaded")
