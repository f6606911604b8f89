"""A pod that is gone without a word, with all its memory: the others hold what it had, and an elastic gang goes on.

Two pods train the tiny task under FSDP; each has a copy of what the other saved. The second one's processes are killed,
and it is given up as the pod of a dead server is; its replacement has nothing.
"""

import json
import os
import signal
from contextlib import suppress
from dataclasses import replace

import pytest
from tests.contracts.launcher.stands import ClusterStand
from tests.oracles.one_process import train
from tests.train.gang import ROOT, load_tiny, tiny_plan

from gangline.checkpoint.format.export import export_model
from gangline.launch.kubernetes.lifecycle.cancel import fail_and_delete_pod
from gangline.procfs import environ, with_variable
from gangline.spec.gang.podset import Resources
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Size
from gangline.storage.objects.blobs import put_blob
from gangline.storage.objects.code_layer import LayerFile, pack

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

STEPS, EVERY, BATCH = 600, 20, 8
MODEL = {"width": 8, "layers": 2}
SMALLER = Size(name="one", strategy="none", mesh=Mesh(), micro_batch=BATCH)
TASK = '''
"""The tiny task, slow until the gang has come to its last generation."""

import os
import time

import torch
from model import Tiny

LAST = int(os.environ["LAST_GENERATION"])


class Slow(Tiny):
    def loss(self, outputs, batch):
        if torch.is_grad_enabled() and int(os.environ["GANGLINE_GENERATION"]) < LAST:
            time.sleep(0.3)
        return super().loss(outputs, batch)
'''


@pytest.fixture
def stand(cluster, tmp_path):
    if not cluster.is_own:
        pytest.skip("processes of a pod are killed on the node, which is done to the project's own cluster alone")
    namespace = cluster.namespace("lost-pods")
    made = ClusterStand(tmp_path, cluster, namespace)
    yield made
    made.close()
    cluster.delete(namespace)


def submit(stand, image, name, *, sizes, last):
    """A gang of two pods whose steps take a while up to generation `last`."""
    plan = tiny_plan(
        "fsdp", steps=STEPS, model=MODEL, global_batch=BATCH, micro_batch=BATCH // 2, sizes=sizes,
        checkpoint=CheckpointPolicy(every=EVERY, asynchronous=False),
    )  # fmt: skip
    plan = replace(plan, program=replace(plan.program, task="slow:Slow"), run=name, run_prefix=f"runs/p/c/{name}")
    model = (ROOT / "tests" / "train" / "code" / "model.py").read_bytes()
    code = pack([LayerFile("model.py", model), LayerFile("slow.py", TASK.encode())])
    podset = stand.podset(
        "", name, num_nodes=2, procs_per_node=1, image=image, env={"LAST_GENERATION": str(last)}, restarts=1,
        resources=Resources(cpus=0.6, memory_bytes=1_200_000_000, shm_bytes=64_000_000),
    )  # fmt: skip
    stand.launcher.submit(replace(podset, code=put_blob(stand.store, code), plan=put_blob(stand.store, plan.to_json())))
    return plan


def lose(stand, name, index):
    """As with a server that burns: nobody is asked, nobody says a word, and the cluster forgets the pod."""
    labels = f"gangline/gang={name},batch.kubernetes.io/job-completion-index={index}"
    [pod] = stand.api.items(f"/api/v1/namespaces/{stand.api.namespace}/pods", labels=labels)[0]
    faulty = [pid for pid in with_variable("GANGLINE_GANG", name) if environ(pid).get("NODE_RANK") == str(index)]
    assert faulty
    for order in (signal.SIGSTOP, signal.SIGKILL):  # what stands still hears no SIGTERM of the kubelet
        for pid in faulty:
            with suppress(ProcessLookupError):  # the first of a container takes the others along
                os.kill(pid, order)
        if order is signal.SIGSTOP:
            fail_and_delete_pod(stand.api, pod)


def resumed(stand, plan, rank):
    """How it came back to what was saved, by generation."""
    lines = stand.store.get(f"{plan.run_prefix}/ranks/{rank}.jsonl").data.splitlines()
    return {each["generation"]: each for each in map(json.loads, lines) if each["event"] == "resumed"}


def follow(stand, name, *, strike_after):
    """The end of the gang, which loses its second pod once that has finished this step, and all that was told."""
    faulty, reported = False, []
    for event in stand.launcher.follow(name):
        reported.append(event.data)
        if event.end is not None:
            assert faulty, "it ended before anything was lost"
            return event.end, reported
        if not faulty and event.data.get("event") == "step" and event.data["step"] >= strike_after:
            faulty = True
            lose(stand, name, 1)
    raise AssertionError("it was followed to no end")


@pytest.mark.row("T7")
def test_elastic_gang_continues_smaller_from_copies_and_grows_with_the_replacement(cluster, stand, tmp_path):
    plan = submit(stand, cluster.train_image, "elastic", sizes=(SMALLER,), last=2)
    end, reported = follow(stand, "elastic", strike_after=EVERY + 2)
    assert (end.exit_code, end.generation, end.restarts) == (0, 2, 1), end

    sizes = [(each["before"], each["after"]) for each in reported if each.get("event") == "resized"]
    assert sizes == [(2, 1), (1, 2)]
    first, second = resumed(stand, plan, 0), resumed(stand, plan, 1)
    assert (first[1]["source"], first[1]["step"] >= EVERY) == ("copy", True)
    assert (second[2]["source"], second[2]["peer_bytes"] > 0) == ("copy", True)
    assert_weights_of_one_process(stand, plan, tmp_path)


@pytest.mark.row("T11")
def test_replacement_reads_what_the_lost_pod_saved_from_the_other_ones_memory(cluster, stand, tmp_path):
    plan = submit(stand, cluster.train_image, "whole", sizes=(), last=1)
    end, _ = follow(stand, "whole", strike_after=EVERY + 2)
    assert (end.exit_code, end.generation, end.restarts) == (0, 1, 1), end

    first, second = resumed(stand, plan, 0)[1], resumed(stand, plan, 1)[1]
    assert (first["source"], second["source"]) == ("copy", "copy")
    assert first["step"] == second["step"] >= EVERY
    assert second["peer_bytes"] > 0
    assert_weights_of_one_process(stand, plan, tmp_path)


def assert_weights_of_one_process(stand, plan, folder):
    from safetensors.torch import load_file
    from torch.testing import assert_close

    tasks = load_tiny()
    wanted, _ = train(tasks.Tiny(), options=MODEL, data=tasks.Points(0, 37), steps=STEPS, global_batch=BATCH)
    checkpoint = f"{plan.run_prefix}/checkpoints/step-{STEPS:08d}"
    files = export_model(stand.store, checkpoint, stand.secret("checkpoint-key"), folder / "exported", metadata={})
    found = {name: each for file in files if file.suffix == ".safetensors" for name, each in load_file(file).items()}
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert_close(found[name], tensor, atol=1e-4, rtol=0)
