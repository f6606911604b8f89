"""Two gangs of a machine serve at ports of their own, and files say where."""

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from tests.launch.local.machine import Machine

from gangline.launch.local.scrape_targets import free_ports, publish_targets, remove_dead_targets, remove_targets


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    yield machine
    machine.close()


def reported(folder):
    return {path.name: json.loads(path.read_text()) for path in folder.glob("*.json")}


def test_ports_in_a_row_leave_out_those_that_a_file_names_or_a_socket_has(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        base = taken.getsockname()[1]
        first = free_ports(tmp_path, base, 2)
        assert base not in first
        publish_targets(tmp_path, "one", first, gang="one")
        second = free_ports(tmp_path, base, 2)
    assert not set(first) & set(second)
    assert len(second) == 2


def test_a_file_that_is_none_of_ours_is_passed_over(tmp_path):
    (tmp_path / "odd.json").write_text('{"a": [')
    (tmp_path / "other.json").write_text("[1, 2]")
    assert len(free_ports(tmp_path, 30_000, 3)) == 3


def test_where_no_row_is_free_the_first_port_is_taken_all_the_same(tmp_path):
    assert free_ports(tmp_path, 65_530, 10) == range(65_530, 65_540)


def test_withdrawing_twice_is_as_good_as_once(tmp_path):
    publish_targets(tmp_path, "one", range(9400, 9402), gang="one")
    assert reported(tmp_path)["one.json"] == [
        {"targets": ["127.0.0.1:9400", "127.0.0.1:9401"], "labels": {"gang": "one"}},
    ]
    for _ in range(2):
        remove_targets(tmp_path, "one")
    assert reported(tmp_path) == {}


def test_what_a_killed_driver_left_is_removed_and_what_others_serve_stays(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as alive:
        port = alive.getsockname()[1]
        (free,) = free_ports(tmp_path, port + 1, 1)
        publish_targets(tmp_path, "alive.driver", range(port, port + 1))
        publish_targets(tmp_path, "dead.driver", range(free, free + 1))
        publish_targets(tmp_path, "a-gang-that-starts", range(free, free + 1), gang="a")
        remove_dead_targets(tmp_path, "*.driver")
    assert set(reported(tmp_path)) == {"alive.driver.json", "a-gang-that-starts.json"}


def test_a_folder_that_cannot_be_written_costs_a_target_and_no_gang(tmp_path):
    (tmp_path / "targets").write_text("a file")
    publish_targets(tmp_path / "targets", "one", range(9400, 9401))
    remove_targets(tmp_path / "targets", "one")
    assert (tmp_path / "targets").read_text() == "a file"


def test_a_gang_is_announced_while_it_lives_and_its_keepers_know_their_port(machine):
    podset = replace(machine.sleepers(), metrics_port_base=23_400)
    machine.launcher.submit(podset)
    machine.wait_for("running")
    targets = machine.root.parent / "targets"
    (group,) = reported(targets)["run-1.json"]
    first = int(group["targets"][0].rpartition(":")[2])
    assert [each.rpartition(":")[2] for each in group["targets"]] == [str(first), str(first + 1)]
    environ = Path(f"/proc/{machine.folder().keeper(1).pid}/environ").read_bytes().split(b"\0")
    assert f"GANGLINE_METRICS_PORT={first + 1}".encode() in environ
    machine.launcher.cancel("run-1", reason="enough", save=False)
    assert reported(targets) == {}


def test_a_gang_that_serves_no_metrics_is_announced_nowhere(machine):
    machine.launcher.submit(machine.sleepers())
    machine.launcher.cancel("run-1", reason="enough", save=False)
    assert not (machine.root.parent / "targets").exists()
