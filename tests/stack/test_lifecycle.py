"""`up` and `down` on a machine of stand-ins: what is started, remembered, refused, left alone."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from gangline import procfs
from gangline.errors import CapacityError, ConfigError
from gangline.serve.context.accounts import digest_of
from gangline.serve.context.home import effective_site
from gangline.serve.database.open import open_database
from gangline.spec.config.load import load_site
from gangline.spec.config.secrets import resolve_secret
from gangline.stack import lifecycle
from gangline.stack.home import RunningServer
from gangline.stack.lifecycle import bring_up, take_down
from gangline.stack.servers import service_database

ALL = ("versitygw", "prometheus", "grafana", "service")


def states(rows):
    return {row.name: row.state for row in rows}


def asked_of(row):
    with urllib.request.urlopen(row.url, timeout=10) as answer:
        return json.load(answer)


def test_what_is_installed_is_started_and_a_site_names_it(machine):
    machine.install(*ALL)
    rows = {row.name: row for row in bring_up(machine.home, environ=os.environ)}
    assert states(rows.values()) == dict.fromkeys(("s3", "prometheus", "grafana", "service"), "started")
    site = load_site(machine.home.site, environ={})
    assert site.store.endpoint == rows["s3"].url
    assert site.metrics.grafana_url == rows["grafana"].url
    assert f"http://{site.serve.listen}" == rows["service"].url
    assert asked_of(rows["grafana"])["environ"]["PROMETHEUS_URL"] == rows["prometheus"].url


def test_a_port_that_is_taken_meanwhile_is_not_a_server_of_ours_and_the_next_up_takes_another(machine):
    machine.install(*ALL)
    with socket.socket() as foreign:

        def take(row):
            if row.name == "s3":
                foreign.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                foreign.bind(("127.0.0.1", machine.home.read().ports["prometheus"]))
                foreign.listen()

        rows = {row.name: row for row in bring_up(machine.home, environ=os.environ, say=take)}
        assert rows["prometheus"].state == "failed"
        assert "gangline up again" in rows["prometheus"].text
        assert states(bring_up(machine.home, environ=os.environ))["prometheus"] == "started"


def test_keys_are_files_of_mode_600_and_stand_nowhere_else(machine):
    machine.install(*ALL)
    rows = {row.name: row for row in bring_up(machine.home, environ=os.environ)}
    key = resolve_secret(load_site(machine.home.site, environ={}).store.credentials, {}).partition(":")[2]
    assert len(key) == 32
    for name in ("s3-root", "grafana-password", "state.json", "site.toml"):
        assert stat.S_IMODE((machine.home.folder / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(machine.home.folder.stat().st_mode) == 0o700
    for row in rows.values():
        assert key not in " ".join(asked_of(row)["argv"])
    for name in ("state.json", "site.toml", "prometheus.yml"):
        assert key not in (machine.home.folder / name).read_text()


def test_a_secret_of_the_caller_reaches_no_server(machine, monkeypatch):
    monkeypatch.setenv("GANGLINE_S3", "canary:canary")
    machine.install("prometheus")
    rows = {row.name: row for row in bring_up(machine.home, environ=os.environ)}
    assert "GANGLINE_S3" not in asked_of(rows["prometheus"])["environ"]


def test_up_again_changes_nothing(machine):
    machine.install(*ALL)
    bring_up(machine.home, environ=os.environ)
    before = machine.home.read()
    assert set(states(bring_up(machine.home, environ=os.environ)).values()) == {"running"}
    assert machine.home.read() == before


def test_a_server_that_crashed_comes_back_where_it_was(machine):
    machine.install(*ALL)
    urls = {row.name: row.url for row in bring_up(machine.home, environ=os.environ)}
    os.kill(machine.home.read().running["prometheus"].pid, signal.SIGKILL)
    rows = bring_up(machine.home, environ=os.environ)
    assert states(rows) == {"s3": "running", "prometheus": "started", "grafana": "running", "service": "running"}
    assert {row.name: row.url for row in rows} == urls


def test_a_server_is_started_again_where_what_it_reads_has_changed(machine):
    machine.install("prometheus", "service")
    assert "file:" in load_site(bring_and_site(machine), environ={}).store.url
    machine.install("versitygw")
    assert states(bring_up(machine.home, environ=os.environ)) == {
        "s3": "started", "prometheus": "running", "grafana": "absent", "service": "started",
    }  # fmt: skip
    assert load_site(machine.home.site, environ={}).store.url == "s3://gangline/line"


def test_the_service_runs_commits_by_itself_only_where_it_was_asked_to(machine):
    machine.install("service")
    with pytest.raises(ConfigError, match=r"line\.toml"):
        bring_up(machine.home, environ=os.environ, drive=True)
    (machine.repo / "line.toml").write_text(LINE)
    bring_up(machine.home, environ=os.environ)
    assert effective_site(machine.repo, load_site(machine.home.site, environ={})).serve.repositories == {}
    assert states(bring_up(machine.home, environ=os.environ, drive=True))["service"] == "started"
    assert load_site(machine.home.site, environ={}).serve.repositories == {"curve": str(machine.repo)}


LINE = (Path(__file__).parents[2] / "examples" / "command" / "line.toml").read_text()


def bring_and_site(machine):
    bring_up(machine.home, environ=os.environ)
    return machine.home.site


def test_a_port_that_is_taken_is_left_to_its_owner(machine):
    machine.install("prometheus")
    first = bring_up(machine.home, environ=os.environ)[1].url
    take_down(machine.home)
    with socket.create_server(("127.0.0.1", int(first.rpartition(":")[2]))):
        assert bring_up(machine.home, environ=os.environ)[1].url != first


def test_links_of_the_boards_lead_to_the_service_of_the_stack(machine):
    machine.install("grafana", "service")
    rows = {row.name: row for row in bring_up(machine.home, environ=os.environ)}
    boards = Path(asked_of(rows["grafana"])["environ"]["GANGLINE_BOARDS"])
    assert sorted(each.name for each in boards.iterdir()) == ["commit.json", "fleet.json", "line.json"]
    for each in boards.iterdir():
        assert f'"query": "{rows["service"].url}"' in each.read_text("utf-8")


def test_what_is_absent_says_what_to_install(machine):
    rows = bring_up(machine.home, environ=os.environ)
    assert set(states(rows).values()) == {"absent"}
    assert [row.text.split()[0] for row in rows[:3]] == ["install"] * 3
    assert load_site(machine.home.site, environ={}).metrics.grafana_url is None


def test_a_server_that_ends_at_once_is_reported_with_its_last_words(machine):
    machine.install("prometheus")
    machine.break_down("prometheus")
    row = bring_up(machine.home, environ=os.environ)[1]
    assert (row.state, row.url) == ("failed", "")
    assert "cannot read its licence" in row.text
    assert machine.home.read().running == {}


def test_the_s3_server_stays_the_one_whose_data_lie_here(machine):
    machine.install("minio", "versitygw")
    bring_up(machine.home, environ=os.environ, s3="minio")
    take_down(machine.home)
    assert bring_up(machine.home, environ=os.environ)[0].kind == "minio"


def test_versitygw_comes_first_and_minio_is_named_as_affected(machine):
    machine.install("minio")
    row = bring_up(machine.home, environ=os.environ)[0]
    assert (row.kind, row.state) == ("minio", "started")
    assert "write without a signature (GHSA-9c4q-hq6p-c237)" in row.text
    take_down(machine.home, forget=True)
    machine.install("versitygw")
    row = bring_up(machine.home, environ=os.environ)[0]
    assert (row.kind, row.state) == ("versitygw", "started")
    assert "GHSA" not in row.text


@pytest.mark.parametrize(("kind", "variable"), [("minio", "MINIO_ROOT_USER"), ("versitygw", "ROOT_ACCESS_KEY")])
def test_the_name_of_a_root_key_cannot_be_guessed(machine, kind, variable):
    """It is all that a forged write needs where a server checks no signature."""
    names = set()
    for _ in range(2):
        machine.install(kind)
        (row, *_) = bring_up(machine.home, environ=os.environ, s3=kind)
        names.add(asked_of(row)["environ"][variable])
        take_down(machine.home, forget=True)
    assert len(names) == 2
    assert all(re.fullmatch("[0-9a-f]{20}", name) for name in names)


def test_down_stops_exactly_what_up_started(machine):
    machine.install(*ALL)
    bring_up(machine.home, environ=os.environ)
    running = machine.home.read().running
    assert [(row.name, row.state) for row in take_down(machine.home)] == [
        ("service", "stopped"), ("grafana", "stopped"), ("prometheus", "stopped"), ("s3", "stopped"),
    ]  # fmt: skip
    assert not any(lifecycle.is_running(each) for each in running.values())
    assert take_down(machine.home) == []
    assert machine.home.site.exists()


def test_a_process_that_took_over_a_pid_is_left_alone(machine):
    machine.install("prometheus")
    bring_up(machine.home, environ=os.environ)
    state = machine.home.read()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        mine = state.running["prometheus"]
        born_later = RunningServer(stranger.pid, (procfs.start_time(stranger.pid) or 0) - 1, mine.asked)
        state.running["prometheus"] = born_later
        machine.home.write(state)
        assert states(take_down(machine.home)) == {"prometheus": "gone"}
        assert stranger.poll() is None
        stranger.communicate(b"\n")
    assert lifecycle.stop_process(mine)


def test_forget_removes_keys_and_data_even_under_a_damaged_state(machine):
    bring_up(machine.home, environ=os.environ)
    (machine.home.folder / "state.json").write_text("{")
    with pytest.raises(ConfigError, match="down --forget"):
        take_down(machine.home)
    assert take_down(machine.home, forget=True) == []
    assert not machine.home.folder.exists()


def test_two_at_a_time_are_refused(machine):
    machine.home.make()
    with machine.home.held(), pytest.raises(CapacityError, match="another gangline up or down"):
        bring_up(machine.home, environ=os.environ)


def test_a_server_without_manners_is_killed(machine, monkeypatch):
    monkeypatch.setattr(lifecycle, "_TERMINATE_SECONDS", 0.2)
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    )
    machine.home.make()
    log = machine.home.log("stubborn")
    mine = lifecycle.start_process([sys.executable, "-c", stubborn], dict(os.environ), log=log, asked="")
    while "1" not in log.read_text():
        assert lifecycle.is_running(mine)
    assert lifecycle.stop_process(replace(mine))
    assert not lifecycle.is_running(mine)


def test_a_new_database_of_the_service_knows_the_token_of_prometheus(machine):
    machine.install("prometheus")
    bring_up(machine.home, environ=os.environ)
    take_down(machine.home)
    service_database(machine.home).unlink()
    bring_up(machine.home, environ=os.environ)
    database = open_database(str(service_database(machine.home)))
    digest = digest_of((machine.home.folder / "prometheus-token").read_text())
    assert database.tokens.find(digest, now=1.0).name == "prometheus"
    database.close()


def test_the_rest_starts_where_the_packages_of_the_service_are_missing(machine, monkeypatch):
    monkeypatch.setitem(sys.modules, "gangline.serve.database.sqlite", None)
    machine.install("prometheus")
    rows = {row.name: row.state for row in bring_up(machine.home, environ=os.environ)}
    assert (rows["prometheus"], rows["service"]) == ("started", "absent")
