"""Builds the servers of the tests from pinned Go modules, outside the tree: `make tools`, or `python -m tests.tools`.

What is there at its version is left alone, so running again is free; interrupted, it goes on. `GANGLINE_TOOLS` names
another folder than `~/.cache/gangline/tools/bin`.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
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


TOOLS = (
    Tool("minio", "github.com/minio/minio", "v0.0.0-20260212201848-7aac2a2c5b7c"),
    Tool("versitygw", "github.com/versity/versitygw/cmd/versitygw", "v1.8.0"),
    Tool("gitea", "code.gitea.io/gitea", "v1.25.0", HERE / "gitea", "sqlite sqlite_unlock_notify"),
)
_WITHOUT_GO = """\
tools  Go is not on the PATH; it builds MinIO, versitygw and Gitea for the tests.
       Install it (Debian, Ubuntu: apt install golang; any system: go.dev/dl), then run make tools again.
       Without it nothing is lost but the tests marked `tools`: they skip.
"""


def main(*names: str) -> int:
    """Build the tools of these names, or all of them; the exit code."""
    folder = tools_folder()
    wanted = [tool for tool in TOOLS if not names or tool.name in names]
    missing = [tool for tool in wanted if installed_version(folder / tool.name, tool.package) != tool.version]
    for tool in wanted:
        if tool not in missing:
            say(f"{tool.name} {tool.version} is there: {folder / tool.name}")
    if missing and shutil.which("go") is None:
        sys.stderr.write(_WITHOUT_GO)
        return 10
    folder.mkdir(parents=True, exist_ok=True)
    return max([build(tool, folder) for tool in missing], default=0)


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


def build(tool: Tool, folder: Path) -> int:
    """Compile, with a line every 10 seconds; the finished program gets its name in one step."""
    say(f"{tool.name} {tool.version}: downloading and compiling, 2 to 6 minutes on 2 cores the first time")
    began = time.monotonic()
    staged = folder / f".{tool.name}.building"
    staged.mkdir(exist_ok=True)
    if tool.workshop is not None:
        shutil.copytree(tool.workshop, staged, dirs_exist_ok=True)
    environment = {**os.environ, "GOBIN": str(staged), **tool.environment}
    done = threading.Event()
    ticker = threading.Thread(target=tick, args=(tool.name, began, done), daemon=True)
    ticker.start()
    try:
        ended = subprocess.run(
            tool.command(staged), cwd=staged, env=environment, capture_output=True, text=True, check=False
        )
    finally:
        done.set()
        ticker.join()
    if ended.returncode:
        sys.stderr.write(f"tools  {tool.name} did not build (code {ended.returncode}):\n{ended.stderr[-2000:]}\n")
        return 30
    (staged / tool.name).replace(folder / tool.name)
    shutil.rmtree(staged)
    say(f"{tool.name} ready after {time.monotonic() - began:.0f} s: {folder / tool.name}")
    return 0


def tick(name: str, began: float, done: threading.Event) -> None:
    while not done.wait(10):
        say(f"{name}: {time.monotonic() - began:.0f} s")


def say(text: str) -> None:
    print(f"tools  {text}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("tools  interrupted; run make tools again, it goes on from Go's cache")
