"""`gangline fabric` as it is called: tables, documents, and the ends of wrong calls."""

import json

import pytest
from tests.launch.kubernetes.paper_cluster import Cluster, node
from typer.testing import CliRunner

from gangline.cli.commands.fabric import app
from gangline.errors import ConfigError, UsageError
from gangline.fabric.traffic.rings import MOST_RINGS
from gangline.line.gangs import launchers

PAGE = """
[fabric]
nic_bytes_per_second = 50e9
leaf_uplinks = 64
path_policy = "hash"
groups = [{ name = "g01", servers = "a[001-064]" }, { name = "g02", servers = "b[001-064]", block = "east" }]
"""


@pytest.fixture
def fabric(tmp_path, monkeypatch):
    """Runs a command with the file in FABRIC, and gives its output; an error of ours is raised."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fabric.toml").write_text(PAGE)

    def call(*words, file="fabric.toml"):
        done = CliRunner().invoke(app, [*words, *(["--fabric", file] if file else [])])
        if done.exception is not None:
            raise done.exception
        return done.stdout

    return call


def test_show_prints_counts_and_groups(fabric):
    shown = fabric("show", "--radix", "128")
    assert "128 servers x 8 GPUs = 1,024, large, in 2 groups" in shown
    assert "NIC 50 GB/s line rate" in shown
    assert "ranks     NCCL_CROSS_NIC=0 of gangs on GPUs" in shown
    assert "losses    a path may be lost for 30.1 s (NCCL_IB_TIMEOUT=20" in shown
    assert "7.52 s at 18, 120 s at 22" in shown
    assert "a loss of 1 % shows after 252 (25 s, 20 kbit/s a path); 304 source ports reach all 64 uplinks" in shown
    assert "708 with 99.9 %" in shown
    assert "inside a server not known" in shown
    assert "40 switches of 128 ports (16 leaves, 16 spines, 8 cores), 3,072 cables, 6,144 optics" in shown
    assert "g02    64       east   b[001-064]" in shown


def test_show_says_what_messages_wait_where_it_is_stated(fabric, tmp_path):
    assert "a message waits" not in fabric("show")
    (tmp_path / "slow.toml").write_text(f"{PAGE}nic_latency_seconds = 8e-6\nintra_latency_seconds = 2e-6\n")
    assert " · a message waits 8 us, 2 us inside" in fabric("show", file="slow.toml")
    written = fabric("show", "--write", "-", file="slow.toml")
    assert "nic_latency_seconds = 8e-06" in written


def test_show_compares_presets_and_does_without_groups(fabric, tmp_path):
    assert "one every 49 h 29 min on all of them; presets of whole servers: 28 h 50 min to" in fabric("show")
    (tmp_path / "none.toml").write_text("[fabric]\nrails = 4\n")
    assert fabric("show", file="none.toml").splitlines()[-1] == "groups    none are stated"


def test_show_answers_programs(fabric):
    document = json.loads(fabric("show", "--json"))
    assert document["counts"]["leaves"] == 16
    assert document["fabric"]["groups"][1]["servers"][0] == "b001"
    assert document["clos"] is None


def test_show_writes_the_file_that_it_reads(fabric, tmp_path):
    assert fabric("show", "--write", "other.toml") == "other.toml\n"
    assert fabric("show", "--write", "-", file="other.toml") == (tmp_path / "other.toml").read_text()


def test_show_takes_the_groups_of_a_cluster_and_the_speeds_of_the_file(fabric, monkeypatch, tmp_path):
    labels = {"n1": "g2", "n2": "g1"}
    nodes = [node(name, labels={"gangline/fabric-group": group}) for name, group in labels.items()]
    monkeypatch.setattr(launchers, "open_cluster", lambda site, environ: Cluster(nodes=nodes, pods=[]))
    shown = fabric("show", "--cluster")
    assert "2 servers x 8 GPUs = 16, small, in 2 groups" in shown
    assert "NIC 50 GB/s line rate" in shown
    assert fabric("show", "--cluster", "--write", "-", file=None).splitlines() == [
        "[fabric]", "groups = [", '    { name = "g1", servers = "n2" },', '    { name = "g2", servers = "n1" },', "]",
    ]  # fmt: skip


def test_explain_compares_orders_without_any_file(fabric):
    heading, names, *rows, links = fabric("explain", "--order", "plan,random", file=None).splitlines()
    assert links.startswith("links     of an example network, not of yours")
    assert heading == "one ring of 2,048 servers, 32 groups, 64 uplinks a leaf, paths hash"
    assert [row.split()[:5] for row in rows] == [
        ["plan", "1", "32", "1.0", "1.00"],
        ["random", "4", "1,985", "3.2", "0.32"],
        ["random", "1", "1,985", "6.0", "0.17"],
    ]
    assert names.split() == ["order", "connections", "crossings", "busiest", "efficiency", "all-reduce", "speed-up",
                             "net", "days", "wall", "days", "GPU-h"]  # fmt: skip
    assert [row.split()[-1] for row in rows] == ["M", "M", "M"]


def test_explain_fits_what_was_measured(fabric):
    document = json.loads(fabric("explain", "--measured", "5e9:0.70,20e9:0.90", "--json"))
    assert document["training"]["traffic_bytes_per_second"] == pytest.approx(2.116e9, rel=1e-3)
    assert document["training"]["overlap"] == 0.0


def test_explain_answers_programs(fabric):
    document = json.loads(fabric("explain", "--order", "random", "--connections", "2", "--json"))
    assert [each["connections"] for each in document["orders"]] == [2]
    assert document["training"]["parameters"] == 175e9


@pytest.mark.parametrize(
    ("words", "kind", "said"),
    [
        (("show", "--radix", "5"), ConfigError, "switches of an even number of ports"),
        (("explain", "--order", "best"), UsageError, "wanted --order with some of plan, random, found best"),
        (("explain", "--connections", "0"), UsageError, "wanted --connections with numbers from 1 to 1024"),
        (("explain", "--flops", "-1"), UsageError, r"wanted --flops from 1e\+06 to 1e\+24, found -1"),
        (("explain", "--overlap", "2"), UsageError, "wanted --overlap"),
        (("explain", "--measured", "5e9"), UsageError, "wanted --measured RATE:SHARE"),
        (("explain", "--measured", "5e9:0.7"), UsageError, "wanted --measured RATE:SHARE"),
        (("explain", "--measured", "5e9:1.7,20e9:0.9"), UsageError, "--measured: wanted larger shares at larger rates"),
        (("explain", "--restart-seconds", "1e300"), UsageError, r"wanted --restart-seconds from 0 to 1e\+07"),
        (("explain", "--tokens", "1e300"), UsageError, r"wanted --tokens from 1 to 1e\+24"),
    ],
)
def test_wrong_calls_are_explained(fabric, words, kind, said):
    with pytest.raises(kind, match=said):
        fabric(*words)


def test_show_without_a_file_says_how_to_state_one(fabric):
    with pytest.raises(ConfigError, match=r"wanted a fabric.toml, found none by --fabric, GANGLINE_FABRIC"):
        fabric("show", file=None)


RINGS = "a:1:2 [0] NCCL INFO Channel 00/02 : {}\na:1:2 [0] NCCL INFO Channel 01/02 : {}\n"


def test_rings_of_a_log_are_held_against_the_plan(fabric, tmp_path):
    (tmp_path / "log").write_text(RINGS.format("0 1 2 3 4 5", "1 0 5 4 3 2"))
    words = ("rings", "log", "--ranks", "6", "--per-node", "2")
    assert fabric(*words, file=None).splitlines()[1:] == [
        "       1  as planned                   0 1 2",
        "       1  as planned                   0 2 1",
    ]
    (tmp_path / "log").write_text(RINGS.format("0 1 4 5 2 3", "0 2 1 3 4 5"))
    done = CliRunner().invoke(app, [*words, "--json"])
    assert (done.exit_code, [each["follows_plan"] for each in json.loads(done.stdout)["rings"]]) == (60, [True, False])


def test_a_hostile_log_is_read_within_bounds(fabric, tmp_path):
    """Numbers that no int takes, a line without end, more rings than any gang has."""
    lines = RINGS.format("0 " + "9" * 5000, "0 1") + "x" * 3_000_000 + "\n" + RINGS.format("0 1", "0 1") * 4000
    (tmp_path / "log").write_text(lines)
    done = CliRunner().invoke(app, ["rings", "log", "--ranks", "2", "--per-node", "1", "--json"])
    assert (done.exit_code, len(json.loads(done.stdout)["rings"])) == (0, MOST_RINGS)


def test_a_log_without_rings_says_what_prints_them(fabric, tmp_path):
    (tmp_path / "log").write_text("step 1\n")
    with pytest.raises(UsageError, match="wanted rings of 8 ranks, found none; rank 0 prints them with NCCL_DEBUG"):
        fabric("rings", "log", "--ranks", "8", file=None)
    with pytest.raises(UsageError, match="wanted a log to read, found No such file"):
        fabric("rings", "nowhere", "--ranks", "8", file=None)
