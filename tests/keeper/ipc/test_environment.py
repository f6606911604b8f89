"""What a keeper and a rank read from their environment."""

import pytest

from gangline.errors import ConfigError
from gangline.keeper.ipc.environment import KeeperEnvironment, RankEnvironment, current_rank

GANG = {
    "NODE_RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "GANGLINE_RUN": "r",
    "GANGLINE_GANG": "r-eval",
    "GANGLINE_HOME": "/h",
    "GANGLINE_PLAN": "/h/plan.json",
    "GANGLINE_CODE": "/h/code",
    "GANGLINE_STORE": "file:/s",
    "GANGLINE_KEY_FILE": "/h/key",
}
RANK = GANG | {"RANK": "3", "LOCAL_RANK": "1", "GANGLINE_GENERATION": "2", "GANGLINE_HEARTBEAT": "/h/heartbeat/3"}


def test_keeper_has_defaults_for_what_is_optional():
    keeper = KeeperEnvironment.read(GANG)
    assert (keeper.num_nodes, keeper.grace_seconds, keeper.metrics_port) == (2, 30.0, None)
    assert (keeper.limits.start, keeper.limits.first, keeper.limits.extra) == (300, 600, 10)
    assert (keeper.start_method, keeper.deadline_seconds) == ("auto", None)


def test_keeper_knows_where_the_others_meet_and_how_patient_they_are():
    keeper = KeeperEnvironment.read(GANG)
    assert (keeper.control_port, keeper.ready_port, keeper.termination_log) == (29501, None, None)
    assert (keeper.rejoin_seconds, keeper.silence_seconds, keeper.ping_seconds) == (600, 30, 5)
    assert (list(keeper.ranks), keeper.on_loopback) == ([2, 3], True)
    assert not KeeperEnvironment.read(GANG | {"MASTER_ADDR": "gang-0.gang"}).on_loopback


def test_rank_knows_its_place():
    rank = RankEnvironment.read(RANK)
    assert (rank.rank, rank.local_rank, rank.generation, rank.out.as_posix()) == (3, 1, 2, "/h/out")


@pytest.mark.parametrize(("variables", "is_rank"), [(RANK, True), (GANG, False)])
def test_process_is_a_rank_if_a_keeper_started_it(variables, is_rank, monkeypatch):
    monkeypatch.delenv("GANGLINE_GENERATION", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert current_rank() == (RankEnvironment.read(variables) if is_rank else None)


@pytest.mark.parametrize("name", [name for name in RANK if name != "NODE_RANK"])
def test_missing_variable_is_named(name):
    with pytest.raises(ConfigError, match=name):
        RankEnvironment.read({key: value for key, value in RANK.items() if key != name})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WORLD_SIZE", "0"),
        ("RANK", "4"),
        ("MASTER_PORT", "65536"),
        ("GANGLINE_GENERATION", "-1"),
        ("GANGLINE_GRACE_SECONDS", "nan"),
    ],
)
def test_wrong_value_of_a_rank_is_named(name, value):
    with pytest.raises(ConfigError, match=f"{name}='?{value}"):
        RankEnvironment.read(RANK | {name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GANGLINE_CONTROL_PORT", "x"),
        ("GANGLINE_REJOIN_SECONDS", "0"),
        ("GANGLINE_START_METHOD", "fast"),
        ("GANGLINE_WATCHDOG_EXTRA_SECONDS", "0"),
        ("NODE_RANK", "2"),
    ],
)
def test_wrong_value_of_a_keeper_is_named(name, value):
    with pytest.raises(ConfigError, match=name):
        KeeperEnvironment.read(GANG | {name: value})
