"""kubectl with one kubeconfig: the test cluster's own as its administrator, or a given one."""

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.rig import places
from tests.cluster.rig.inside import output
from tests.cluster.servers.build import program


@dataclass(frozen=True, kw_only=True, slots=True)
class Kubectl:
    program: Path
    kubeconfig: Path

    def run(self, *arguments: str, feed: str | None = None) -> str:
        """What it prints; raises `Trouble`."""
        return output([*self._command(), *arguments], input=feed)

    def read(self, *arguments: str) -> dict[str, Any]:
        """What `get` says, as JSON; raises `Trouble`."""
        return json.loads(self.run("get", *arguments, "-o", "json"))

    def apply(self, objects: Iterable[dict[str, Any]]) -> None:
        reported = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.run(
            "apply", "--server-side", "--force-conflicts", "--field-manager=gangline-test", "-f", "-",
            feed=json.dumps(reported),
        )  # fmt: skip

    def create_missing(self, objects: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """What was made; leaves alone what is there under the same name."""
        made = []
        for each in objects:
            name = f"{each['kind']}/{each['metadata']['name']}"
            where = ("-n", each["metadata"]["namespace"]) if "namespace" in each["metadata"] else ()
            if not self.run("get", name, *where, "--ignore-not-found", "-o", "name").strip():
                self.apply([each])
                made.append(each)
        return made

    def holds(self, *arguments: str, wanted: str) -> bool:
        """Whether the answer is `wanted`; an error is a no."""
        ended = subprocess.run([*self._command(), *arguments], capture_output=True, text=True, check=False)
        return ended.returncode == 0 and ended.stdout.strip() == wanted

    def _command(self) -> list[str]:
        return [str(self.program), f"--kubeconfig={self.kubeconfig}", "--request-timeout=60s"]


def own() -> Kubectl:
    return Kubectl(program=program("kubectl"), kubeconfig=places.kubeconfig())
