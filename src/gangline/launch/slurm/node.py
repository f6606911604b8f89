"""What runs on each server of a job: starts the keeper of its node and passes signals on (`... .slurm.node FOLDER`).

It ends the keeper, and all that the gang has on this server, when its own parent, slurmstepd, is gone. A keeper that
dies without a word gets its end written here.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gangline.errors import SIGKILL_CODE, GanglineError
from gangline.launch.local.folder import GangFolder
from gangline.launch.local.processes import kill_gang, write_end
from gangline.launch.slurm.lives import KeeperCommand, read_life, read_start, values_of

POLL_SECONDS = 1.0


class NodeKeeper:
    """The keeper of one server."""

    def __init__(self, folder: GangFolder, node: int, command: KeeperCommand) -> None:
        self._folder, self._node, self._parent = folder, node, os.getppid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN if command.reports_pid else signal.SIG_DFL)
        reader, writer = os.pipe()
        os.set_inheritable(writer, True)  # the sandbox writes there which process is the keeper
        argv = list(command.argv)
        if command.reports_pid:
            argv[argv.index("--info-fd") + 1] = str(writer)
        with folder.keeper_log(node).open("ab") as log:
            self._process = subprocess.Popen(
                argv, env=command.environ, cwd=command.cwd, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                pass_fds=[writer] if command.reports_pid else [],
            )  # fmt: skip
        os.close(writer)
        self._keeper = _reported(reader) if command.reports_pid else self._process.pid
        os.close(reader)
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, self._pass_on)

    def _pass_on(self, number: int, _: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._keeper or self._process.pid, number)

    def wait(self) -> int:
        """Wait for the keeper; returns its exit code."""
        while True:
            with suppress(subprocess.TimeoutExpired):
                code = self._process.wait(POLL_SECONDS)
                break
            if os.getppid() != self._parent:
                kill_gang(self._folder)
                self._process.kill()
                return SIGKILL_CODE
        if self._folder.end(self._node) is None:
            if code < 0:
                kill_gang(self._folder)
            write_end(self._folder, self._node)
        return code if code >= 0 else 128 - code


def _reported(reader: int) -> int | None:
    """Process of the keeper as bubblewrap reports it; None: it ended before."""
    data = b""
    while piece := os.read(reader, 4096):
        data += piece
        with suppress(ValueError, KeyError, TypeError):
            return int(json.loads(data)["child-pid"])
    return None


def main(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the node of this server; returns the exit code of its keeper."""
    folder = GangFolder(Path(words[1]))
    try:
        life = read_life(folder)
        assert life is not None, "the script has begun a life"
        node = life.servers.index(environ["SLURMD_NODENAME"])
        command = read_start(folder).commands[node].filled(values_of(life, folder.podset(), environ))
    except (GanglineError, OSError, ValueError) as error:
        sys.stderr.write(f"gangline: {error}\n")
        return error.exit_code if isinstance(error, GanglineError) else 1
    return NodeKeeper(folder, node, command).wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv, os.environ))
