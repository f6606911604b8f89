"""A kubelet without containers: pods of the fake server become processes with a real keeper, whose words are the logs.

It binds what has no gate, starts the keeper of the pod's node in a folder of its own, passes its files on as lines and
states, stops it as a kubelet does, and leaves the termination message. Controllers of the fake run in the same thread.
"""

import base64
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from tests.cluster.fake.api import FakeApi
from tests.cluster.fake.controllers import JobController
from tests.cluster.fake.kubelet import FakeKubelet

from gangline.launch.kubernetes.objects.labels import GANG, SPEC
from gangline.launch.kubernetes.state.pods import node_rank
from gangline.launch.local.folder import GangFolder
from gangline.launch.local.follower import Tail
from gangline.launch.local.keeper_start import keeper_environ, materialise
from gangline.launch.local.processes import kill_gang
from gangline.spec.gang.pod_output import event_line, log_line, status_line, to_message
from gangline.spec.gang.podset import PodSet
from gangline.spec.gang.status import KeeperStatus
from gangline.storage.objects.protocol import ObjectStore

STEP_SECONDS = 0.02


@dataclass
class _Running:
    """One pod that is a process."""

    name: str
    node: int
    podset: PodSet
    folder: GangFolder
    process: "subprocess.Popen[bytes]"
    tails: dict[str, Tail] = field(default_factory=dict)
    status: KeeperStatus | None = None
    reported_to_stop: float | None = None

    def lines(self) -> Iterator[str]:
        """What its keeper would have written to stdout since last asked."""
        first = self.node * self.podset.procs_per_node
        for rank in range(first, first + self.podset.procs_per_node):
            log = self.tails.setdefault(f"log {rank}", Tail(self.folder.log(rank)))
            yield from (log_line(rank, text) for text in log.lines())
            events = self.tails.setdefault(f"rank {rank}", Tail(self.folder.rank_events(rank)))
            yield from map(event_line, events.events())
        keeper = self.tails.setdefault("keeper", Tail(self.folder.keeper_events(self.node)))
        yield from (event_line({"keeper": self.node, **event}) for event in keeper.events())
        status = self.folder.keeper(self.node)
        if status is not None and status != self.status:
            self.status = status
            yield status_line(status)

    @property
    def has_joined(self) -> bool:
        return self.status is not None and len(self.status.joined) == self.podset.procs_per_node


class ProcessKubelet:
    """Runs until it is closed; nothing it started is left then."""

    def __init__(self, api: FakeApi, root: Path, *, store: ObjectStore) -> None:
        self._api, self._root, self._store = api, root, store
        self._hands = FakeKubelet(api.server, auto=False)
        self._jobs = JobController(api.server)
        self._running: dict[str, _Running] = {}
        self._seen: set[str] = set()
        self._last = datetime.now(UTC)
        self._over = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)
        self._thread.start()

    def homes(self, gang: str) -> list[Path]:
        """Folders of the pods of a gang."""
        return sorted((self._root / gang).glob("*"))

    def kill(self, gang: str) -> None:
        """Its keepers die of SIGKILL, with all they started."""
        for each in [each for each in self._running.values() if each.podset.name == gang]:
            each.process.kill()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        for each in self._running.values():
            kill_gang(each.folder)
            each.process.wait()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            while not self._over.wait(STEP_SECONDS):
                with self._api.server.store.changed:  # a controller of the fake reads, then writes
                    self._jobs.step()
                self._step()
        except BaseException as error:
            traceback.print_exc()  # at once: whoever waits for a pod hangs from now on
            self.error = error

    def _step(self) -> None:
        pods = {pod["metadata"]["uid"]: pod for pod in self._pods()}
        for uid in [uid for uid in self._running if uid not in pods]:
            gone = self._running.pop(uid)  # by force: a real one may run on for a while
            kill_gang(gone.folder)
            gone.process.wait()
        for uid, pod in pods.items():
            running = self._running.get(uid)
            if running is not None:
                self._look_after(uid, pod, running)
            elif "deletionTimestamp" in pod["metadata"]:
                self._hands.step()
            elif uid not in self._seen and not pod["spec"].get("schedulingGates"):
                self._start(uid, pod)

    def _start(self, uid: str, pod: dict[str, Any]) -> None:
        self._seen.add(uid)
        name, gang, node = pod["metadata"]["name"], pod["metadata"]["labels"][GANG], node_rank(pod)
        podset = PodSet.from_json(self._job(gang)["metadata"]["annotations"][SPEC])
        folder = GangFolder(self._root / gang / name)
        materialise(folder, podset, store=self._store, secrets=lambda key: self._secret(pod, key))
        environ = keeper_environ(folder, replace(podset, store=self._store.url), node)
        command = [sys.executable, "-m", "gangline.keeper.main"]
        self._act(name, partial(self._hands.run, ready=False))
        process = subprocess.Popen(
            command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
        )
        self._running[uid] = _Running(name=name, node=node, podset=podset, folder=folder, process=process)

    def _look_after(self, uid: str, pod: dict[str, Any], running: _Running) -> None:
        ended = running.process.poll()
        self._say(running)
        if ended is not None:
            kill_gang(running.folder)
            self._end(uid, pod, running, ended)
            return
        if "deletionTimestamp" in pod["metadata"]:
            self._stop(pod, running)
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"]["conditions"])
        if ready != running.has_joined:
            self._act(running.name, partial(self._hands.run, ready=running.has_joined))

    def _stop(self, pod: dict[str, Any], running: _Running) -> None:
        now = datetime.now(UTC).timestamp()
        if running.reported_to_stop is None:
            running.reported_to_stop = now
            running.process.send_signal(signal.SIGTERM)
        elif now - running.reported_to_stop > pod["metadata"].get("deletionGracePeriodSeconds", 30):
            os.killpg(running.process.pid, signal.SIGKILL)

    def _end(self, uid: str, pod: dict[str, Any], running: _Running, code: int) -> None:
        end = running.folder.end(running.node)
        del self._running[uid]
        exit_code, message = 128 - code if code < 0 else code, to_message(end) if end else ""
        self._act(running.name, partial(self._hands.end, exit_code=exit_code, message=message))

    def _act(self, name: str, act: Callable[..., object]) -> None:
        """On a pod, unless it was deleted by force since it was read: a real kubelet lets go of it, too."""
        with self._api.server.store.changed:
            if self._api.server.store.get(("pods", self._api.namespace, name)) is not None:
                act(name, namespace=self._api.namespace)

    def _say(self, running: _Running) -> None:
        log = self._api.server.logs.setdefault((self._api.namespace, running.name), [])
        for line in running.lines():
            now = datetime.now(UTC)
            self._last = max(now, self._last.replace(microsecond=min(self._last.microsecond + 1, 999_999)))
            log.append((f"{self._last:%Y-%m-%dT%H:%M:%S.%f}{len(log) % 1000:03}Z", line))

    def _pods(self) -> list[dict[str, Any]]:
        server = self._api.server
        return list(server.store.all_of(server.kind("pods"), self._api.namespace))

    def _job(self, gang: str) -> dict[str, Any]:
        found = self._api.server.store.get(("jobs.batch", self._api.namespace, gang))
        assert found is not None, f"pods of {gang} without a Job"
        return found

    def _secret(self, pod: dict[str, Any], key: str) -> bytes:
        """Of the one Secret that the pod mounts."""
        (name,) = [each["secret"]["secretName"] for each in pod["spec"]["volumes"] if "secret" in each]
        found = self._api.server.store.get(("secrets", self._api.namespace, name))
        assert found is not None, f"{pod['metadata']['name']} waits for the Secret {name}"
        return base64.b64decode(found["data"][key])
