"""A real HDFS for tests: one NameNode and one DataNode in a child process, spoken to by WebHDFS."""

import subprocess
from pathlib import Path

import requests
from tests.contracts.storage.servers import _DIES_WITH_US, tool


class HdfsServer:
    """The process; its DataNode can be stopped, and started again on another port."""

    def __init__(self, folder: Path) -> None:
        place = tool("hdfs/Hdfs.class").parent
        words = [
            "java",
            "-Xmx400m",
            "-Duser.timezone=UTC",
            "-cp",
            f"{place}:{place / 'jars'}/*",
            "Hdfs",
            str(folder / "data"),
        ]
        with (folder / "hdfs.log").open("wb") as log:
            self.process = subprocess.Popen(
                [*_DIES_WITH_US, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                env={"PATH": "/usr/bin:/bin", "HOME": str(folder)}, cwd=folder,
            )  # fmt: skip
        _, name, data = self._line("ready ").split()
        self.address, self.data_address = f"localhost:{name}", f"127.0.0.1:{data}"

    @property
    def url(self) -> str:
        return f"webhdfs://root@{self.address}/corpora"

    def stop_data(self) -> None:
        self._say("stop", "stopped")

    def start_data(self) -> None:
        self.data_address = f"127.0.0.1:{self._say('start', 'started ').split()[1]}"

    def put(self, path: str, data: bytes) -> None:
        """Write a file below /corpora, as any client of HDFS does."""
        url = f"http://{self.address}/webhdfs/v1/corpora/{path}?op=CREATE&overwrite=true&user.name=root"
        hop = requests.put(url, allow_redirects=False, timeout=60)
        requests.put(hop.headers["Location"], data=data, timeout=60).raise_for_status()

    def end(self) -> None:
        with self.process:
            self.process.kill()

    def _say(self, word: str, answer: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self._line(answer)

    def _line(self, start: str) -> str:
        """First line of its output with this start; its log comes with them."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(start):
                return line
        raise RuntimeError("HDFS ended before it answered")
