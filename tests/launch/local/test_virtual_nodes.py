"""Virtual nodes of this machine: a keeper each, one folder."""

import os
import signal
import socket
from dataclasses import replace

import pytest
from tests.launch.local.machine import Machine
from tests.train.gang import make_plan

from gangline import procfs
from gangline.errors import CapacityError
from gangline.keeper.coordination.control_port import PORT_FILE
from gangline.spec.gang.podset import Resources


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    yield machine
    machine.close()


def test_cancel_reaches_all_nodes(machine):
    machine.launcher.submit(machine.sleepers())
    machine.wait_for("running")
    assert machine.launcher.status("run-1").joined == 2
    machine.launcher.cancel("run-1", reason="a better idea", save=False)
    assert [machine.folder().end(node).exit_code for node in range(2)] == [70, 70]
    assert machine.launcher.collect("run-1").exit_code == 70


def test_nodes_meet_at_a_port_that_the_first_one_has_taken_whatever_held_the_one_before(machine):
    with socket.create_server(("127.0.0.1", 0)) as another_program:
        former = another_program.getsockname()[1]
        port = machine.folder().home / PORT_FILE
        port.parent.mkdir(parents=True)
        port.write_text(str(former))
        machine.launcher.submit(machine.sleepers())
        machine.wait_for("running")
        assert int(port.read_text()) != former
    assert machine.launcher.status("run-1").joined == 2


def test_node_that_dies_speaks_for_the_gang_which_does_not_wait_for_ever(machine, monkeypatch):
    monkeypatch.setattr("gangline.launch.local.keeper_start.REJOIN_SECONDS", 1.0)
    machine.launcher.submit(machine.sleepers())
    machine.wait_for("running")
    keeper = machine.folder().keeper(1)
    assert procfs.is_alive(keeper.pid, keeper.start_time)
    os.kill(keeper.pid, signal.SIGKILL)
    machine.wait_for("ended")
    end = machine.launcher.collect("run-1")
    assert (end.exit_code, end.retry) == (137, "same")
    assert "the keeper of node 1 died" in end.reason


def test_nodes_together_want_no_more_gpus_than_there_are(machine):
    with pytest.raises(CapacityError, match="wants 64 GPUs"):
        machine.launcher.submit(replace(machine.sleepers(), resources=Resources(gpus=32)))


def test_gang_begins_above_every_generation_of_its_run_that_saved(machine):
    podset = machine.sleepers()
    prefix = make_plan("ddp").run_prefix
    machine.store.put(f"{prefix}/checkpoints/latest.json", b'{"step":7,"generation":4}')
    machine.launcher.submit(podset)
    machine.wait_for("running")
    assert machine.launcher.status("run-1").generation == 5
    assert machine.launcher.status("run-1").restarts == 0
