"""A Jenkins small enough for a test: one repository, its agents, builds that a controller carries out.

Agents are processes with an environment of their own, as the pods of `jenkins/agents` give it; commands on them are the
real ones. A build lives in its folder, so a controller that is killed is replaced by starting another one there.
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from tests.jenkins.controller.engine import HERE, java
from tests.jenkins.files import AGENTS, PIPELINE, VARS
from tests.jenkins.seeded import script_of_the_job

from gangline.signing.keys import SigningKey, private_pem

PATIENCE_SECONDS = 90.0
BIN = Path(sys.executable).parent
SPY = """#!/bin/sh
{{ printf '%s|%s|%s\\n' "$AGENT" "$MOUNTED" "$*"; env -0 | tr '\\0\\n' '\\n '; echo; }} >> {log}
for word in "$@"; do
    shift
    [ "$word" = {look} ] && word={looked}
    [ "$word" = {hidden} ] && continue
    set -- "$@" "$word"
done
exec {real} "$@"
"""
"""Says who called what with which variables; looks at a gang as long as a test wishes, instead of thirty seconds."""
LOOK_SECONDS = 30
SIGNING = ("gangline-signing", "gangline-fork-signing")


def new_key(name):
    return SigningKey(private_pem(ec.generate_private_key(ec.SECP256R1())), name)


def until(holds, what):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := holds()):
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_SECONDS:.0f} s"
        time.sleep(0.05)
    return found


@dataclass
class Build:
    """One build; its controller is a process that may come and go."""

    folder: Path
    class_path: str
    process: "subprocess.Popen[bytes] | None" = None

    def start(self):
        """Let a controller carry it out, or go on where the last one stood."""
        with (self.folder / "controller").open("ab") as said:
            command = [java(), "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", self.class_path, "Controller"]
            environ = {
                "PATH": "/usr/bin:/bin",
                "HOME": str(self.folder),
                "CONTROLLER_SECRET": "CANARY-of-the-controller",
            }
            self.process = subprocess.Popen(
                [*command, str(self.folder)], env=environ, stdout=said, stderr=said, start_new_session=True
            )
        return self

    def kill(self):
        """As a machine does that loses its power; the agents are others."""
        self.process.kill()
        self.process.wait()

    def abort(self):
        (self.folder / "abort.new").write_text("by a person")
        (self.folder / "abort.new").rename(self.folder / "abort")

    def result(self):
        """What it ended with, once it has."""
        until(lambda: self.process.poll() is not None, self.tail())
        path = self.folder / "result.json"
        assert path.exists(), self.tail()
        return json.loads(path.read_text())

    def read(self, name):
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def until_log(self, text):
        until(lambda: text in self.read("log") or self.process.poll() is not None, f"{text!r} in the log")
        assert text in self.read("log"), self.tail()

    def commands(self):
        """Processes of agents that run a step now."""
        pids = [pid.read_text().strip() for pid in self.folder.glob("steps/*/pid") if not pid.with_name("rc").exists()]
        return [int(pid) for pid in pids if pid and Path(f"/proc/{pid}").exists()]

    def outputs(self):
        steps = sorted(self.folder.glob("steps/*"), key=lambda step: int(step.name))
        return "".join((step / name).read_text() for step in steps for name in ("out", "err") if (step / name).exists())

    def tail(self):
        return f"{self.read('log')[-3000:]}\n{self.outputs()[-3000:]}\n{self.read('controller')[-3000:]}"


@dataclass
class Jenkins:
    """The job of one repository."""

    folder: Path
    class_path: str
    repository: Path
    store: Path
    gangline: Path = BIN / "gangline"
    shown: Path | None = None
    """A folder that model code of own commits may read."""
    milliseconds_a_minute: float = 100.0
    look_seconds: int = 2
    hidden: str = "no-option"
    """An option of gangline that the steps pass in vain."""
    builds: list[Build] = field(default_factory=list)
    keys: dict[str, SigningKey] = field(default_factory=lambda: {name: new_key(name) for name in SIGNING})
    """By the secret that holds it."""

    @property
    def workspace(self):
        return self.folder / "workspace"

    @property
    def spied(self):
        """Of each call of gangline: (agent, mounted secrets, arguments)."""
        log = self.folder / "spied"
        lines = log.read_text().splitlines() if log.exists() else []
        return [tuple(line.split("|", 2)) for line in lines if line.startswith("gangline-") and line.count("|") >= 2]

    def build(self, commit=None, *, ref=None, meanwhile=(), **env):
        """Start a build of `commit`, or of the commit that `ref` names when the build first asks; `env`: its variables.

        `meanwhile` names what is so from the beginning: agents-away, forge-away, branch-gone.
        """
        folder = self.folder / f"build-{len(self.builds) + 1}"
        folder.mkdir(parents=True)
        library = {path.stem: str(path) for path in (PIPELINE, *VARS.values(), HERE / "Blocks.groovy")}
        asked = {
            "script": script_of_the_job(), "library": library, "env": env, "repository": str(self.repository),
            "commit": commit, "ref": ref, "workspace": str(self.workspace),
            "milliseconds_a_minute": self.milliseconds_a_minute,
            "agents": {f"gangline-{name}": self._agent(name) for name in AGENTS},
        }  # fmt: skip
        (folder / "build.json").write_text(json.dumps(asked))
        for name in meanwhile:
            (folder / name).touch()
        self.builds.append(Build(folder, self.class_path))
        return self.builds[-1].start()

    def close(self):
        for build in self.builds:
            if build.process.poll() is None:
                build.kill()
            for pid in build.commands():
                os.killpg(pid, signal.SIGKILL)

    def _agent(self, name):
        """Environment of an agent, as its pod gives it; paths are those of this machine."""
        pod = yaml.safe_load(AGENTS[name].read_text())["spec"]
        (container,) = [each for each in pod["containers"] if each["name"] == "gangline"]
        secrets = sorted(volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume)
        for secret in secrets:
            self._mount(secret)
        site, *others = [volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume]
        assert others == ["gangline-keys"]
        for key in self.keys.values():
            public = self.folder / f"home-{name}" / ".config" / "gangline" / "keys" / f"{key.key_id}.pub"
            public.parent.mkdir(parents=True, exist_ok=True)
            public.write_bytes(key.public.pem)
        here = {
            "PATH": f"{self._spy()}:/usr/bin:/bin", "HOME": str(self.folder / f"home-{name}"),
            "AGENT": f"gangline-{name}", "GANGLINE_SITE": str(self._site(site)), "MOUNTED": ",".join(secrets),
            "OMP_NUM_THREADS": "1", "WORKSPACE": str(self.workspace),
        }  # fmt: skip
        return {each["name"]: each["value"] for each in container["env"]} | here

    def _mount(self, secret):
        path = self.folder / "mounts" / secret / "credentials"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"CANARY:of-{secret}")
        if secret in self.keys:
            path.with_name("key.pem").write_bytes(self.keys[secret].private_pem())
            path.with_name("key.pem").chmod(0o440)

    def _site(self, name):
        """With the keys as the guide says: the project's, and one that seals records of forks alone."""
        path = self.folder / f"{name}.toml"
        own = "gangline-fork-signing" if "fork" in name else "gangline-signing"
        sign = f'[sign]\nkey = "secret:file:{self.folder}/mounts/{own}/key.pem"\n'
        sign += f'identities = ["{self.keys["gangline-signing"].key_id}"]\n'
        sign += f'forks = ["{self.keys["gangline-fork-signing"].key_id}"]\n'
        token = f"secret:file:{self.folder}/mounts/gangline-store/credentials"
        forge = f'[forge.here]\nkind = "gitea"\nurl = "http://127.0.0.1:1"\ntoken = "{token}"\n'
        shown = f'[sandbox]\nread = ["{self.shown}"]\n' if self.shown else ""
        path.write_text(f'[store]\nurl = "file:{self.store}"\n{sign}{shown}' + ("" if "fork" in name else forge))
        return path

    def _spy(self):
        folder = self.folder / "bin"
        folder.mkdir(exist_ok=True)
        spy = folder / "gangline"
        spy.write_text(self._words_of_the_spy())
        spy.chmod(0o755)
        return folder

    def _words_of_the_spy(self):
        words = {"look": LOOK_SECONDS, "looked": self.look_seconds, "hidden": self.hidden}
        return SPY.format(log=self.folder / "spied", real=self.gangline, **words)
