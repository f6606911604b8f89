"""`gangline fabric probe` between listeners of this machine: tables, documents, exit codes."""

import json

import pytest
from typer.testing import CliRunner

from gangline.cli.commands.fabric import app
from gangline.cli.fabric_probe import ProbeReport, listeners_of
from gangline.cli.workspace import open_workspace
from gangline.errors import CapacityError, UsageError
from gangline.fabric.probe.listener import Listener
from gangline.fabric.probe.packets import ProbeResult
from gangline.fabric.probe.telemetry import diagnose_probes
from gangline.line.gangs.stated_network import read_measurement

GROUPS = """
[fabric]
groups = [{ name = "g1", servers = "127.0.0.1" }, { name = "g2", servers = "127.0.0.2" }]
"""


@pytest.fixture
def probe(tmp_path, monkeypatch):
    """Runs the command and gives exit code and output; an error of ours is raised."""
    for name, value in (("HOME", str(tmp_path)), ("XDG_CONFIG_HOME", str(tmp_path)), ("COLUMNS", "200")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("GANGLINE_FABRIC", raising=False)
    monkeypatch.chdir(tmp_path)

    def call(*words):
        done = CliRunner().invoke(app, ["probe", *words])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.stdout

    return call


@pytest.fixture
def servers():
    opened = [Listener(host=host) for host in ("127.0.0.1", "127.0.0.2")]
    yield [f"{host}:{port}" for host, port in (each.address for each in opened)]
    for each in opened:
        each.close()


def test_healthy_servers_end_with_zero(probe, servers):
    code, text = probe(*servers, "--seconds", "0.5", "--flows", "2")
    assert code == 0
    assert "2 paths, 10 probes, 0 lost" in text
    assert "none lost: below 74.88 %" in text


def test_server_that_is_away_ends_with_sixty_and_is_named(probe, servers):
    gone = Listener(host="127.0.0.3")
    gone.close()
    address = f"127.0.0.3:{gone.address[1]}"
    code, text = probe(*servers, address, "--seconds", "1.5", "--json")
    found = json.loads(text)
    assert code == 60
    assert [(each["kind"], each["names"], each["action"]["kind"]) for each in found["diagnoses"]] == [
        ("sick_host", ["127.0.0.3"], "replace")
    ]
    assert list(found["unreachable"]) == ["127.0.0.3"]
    assert {(each["source"], each["target"]) for each in found["paths"] if each["is_lossy"]} == {
        ("127.0.0.1", "127.0.0.3"), ("127.0.0.2", "127.0.0.3"),
    }  # fmt: skip


def test_bandwidth_is_shown_between_groups_too(probe, servers, tmp_path):
    (tmp_path / "fabric.toml").write_text(GROUPS)
    code, text = probe(*servers, "--bandwidth", "--seconds", "0.1", "--fabric", "fabric.toml")
    assert code == 0
    lines = text.splitlines()
    assert lines[0].split() == ["FROM", "TO", "SPEED"]
    assert lines[-3].split() == ["GROUP", "to", "g1", "to", "g2"]
    assert lines[-2].startswith("from g1  -")


def test_few_servers_cannot_be_tested_in_pairs(probe, servers):
    with pytest.raises(UsageError, match="at least 4 different servers"):
        probe(*servers, "--preflight")


@pytest.mark.parametrize("words", [["127.0.0.1:1", "127.0.0.2:1"], ["127.0.0.1:1", "127.0.0.2:1", "--bandwidth"]])
def test_no_listener_at_all_ends_with_twenty(probe, words):
    with pytest.raises(CapacityError, match=r"gangline\.fabric\.probe"):
        probe(*words, "--seconds", "0.1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "none, and no fabric.toml"),
        (["a", "a"], "each once"),
        (["a", "b", "--preflight", "--bandwidth"], "give one of them"),
        (["a:b", "c"], "host or host:port"),
    ],
)
def test_wrong_calls_are_refused_with_what_was_wanted(probe, words, said):
    with pytest.raises(UsageError, match=said):
        probe(*words)


def test_servers_are_named_by_host_and_by_port_where_a_host_has_several():
    assert list(listeners_of(["a1", "a2:5"], b"").addresses) == ["a1", "a2"]
    assert list(listeners_of(["a1:4", "a1:5"], b"").addresses) == ["a1:4", "a1:5"]


def test_report_of_a_lossy_path_says_what_and_why():
    lossy = ProbeResult(
        target="b:1", sent=100, lost=5, lost_there=5, lost_back=0, is_lossy=True, clean_in_a_row=0,
        decided_seconds=9.9, median_seconds=1e-3, p99_seconds=2e-3,
    )  # fmt: skip
    found = diagnose_probes({("a", "b"): lossy}, groups={}, unreachable={})
    report = ProbeReport(measured={}, lines=[], diagnoses=found, unreachable={"c": "no answer"})
    assert report.is_well is False
    assert report.text()[0] == "c: no answer"
    assert "1 of 1 paths lose 5.00 % of their probes" in report.text()[1]


def test_speeds_are_kept_for_plans_and_said_to_be_the_probers_where_they_are(probe, servers, tmp_path):
    (tmp_path / "line.toml").write_text("")
    file = tmp_path / "fabric.toml"
    file.write_text(GROUPS + "nic_bytes_per_second = 1e9\nintra_bus_bytes_per_second = 1e9\nleaf_uplinks = 2\n")
    code, text = probe(*servers, "--bandwidth", "--seconds", "0.2", "--keep", "--fabric", str(file), "--json")
    kept = json.loads(text)["kept"]
    assert code in (0, 60)
    assert kept.startswith("blobs/sha256/")
    measured = read_measurement(open_workspace(tmp_path, None).store)
    assert measured.num_pairs == 2
    assert measured.own_bytes_per_second > 0
    said = CliRunner().invoke(app, ["explain", "--fabric", str(file)]).stdout
    assert "measured" in next(line for line in said.splitlines() if line.startswith("links"))


def test_only_speeds_are_kept(probe, servers):
    with pytest.raises(UsageError, match="give --bandwidth"):
        probe(*servers, "--keep")
