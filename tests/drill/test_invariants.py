"""The invariants of a drill see what they are for."""

import base64
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from tests.registry.passed_run import copy_of, template
from tests.registry.test_promote import point

from gangline.drill.invariants import invariants
from gangline.registry.versions import Alias
from gangline.signing.keys import trusted_keys

SECRET = b"canary-4f1d9c0e-secret"


@pytest.fixture
def look(tmp_path, tmp_path_factory):
    workspace = copy_of(template(tmp_path_factory, "published")[0], tmp_path / "root")
    home = tmp_path / "gang"
    (home / "logs").mkdir(parents=True)
    (home / "secrets").mkdir()
    (home / "secrets" / "key").write_bytes(SECRET)

    def states(record=None):
        found = invariants(
            record or replace(workspace.record, run=replace(workspace.record.run, id="bytegpt-00000000-cccccc")),
            home=home, store=workspace.store, model="bytegpt",
            keys=trusted_keys(workspace.site, workspace.environ), secrets=[SECRET], now=time.time(),
        )  # fmt: skip
        return {each.name: each.state for each in found}

    return workspace, home, states


def test_a_sound_run_holds_all_of_them(look):
    workspace, _, states = look
    point(workspace)
    assert states() == {"I1": "held", "I2": "held", "I3": "-", "I4": "held", "I5": "held", "I6": "held"}


def test_a_drilled_run_that_was_published_breaks_the_first(look):
    workspace, _, states = look
    assert states(workspace.record)["I1"] == "broken"


def test_an_alias_that_no_one_signed_breaks_the_second(look):
    workspace, _, states = look
    alias = point(workspace)
    workspace.store.put(
        alias.key, replace(Alias.from_json(workspace.store.get(alias.key).data), because="forged").to_json()
    )
    assert states()["I2"] == "broken"


def test_what_happens_is_pending_and_what_was_left_running_breaks_the_fourth(look):
    workspace, home, states = look
    going = replace(
        workspace.record, run=replace(workspace.record.run, id="bytegpt-00000000-cccccc", state="open", verdict=None)
    )
    assert states(going)["I4"] == "pending"
    left = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={"GANGLINE_HOME": str(home)})
    try:
        assert states()["I4"] == "broken"
    finally:
        left.stdin.close()
        left.wait()
    assert states()["I4"] == "held"


@pytest.mark.row("P10")
@pytest.mark.parametrize(
    "spelling", [SECRET, SECRET.hex().encode(), base64.b64encode(SECRET), base64.urlsafe_b64encode(SECRET)]
)
def test_a_secret_in_a_log_breaks_the_sixth_however_it_is_spelt(look, spelling):
    _, home, states = look
    (home / "logs" / "0.log").write_bytes(b"x" * ((1 << 20) - 7) + spelling + b" and more")
    assert states()["I6"] == "broken"
