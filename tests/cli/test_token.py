"""`gangline token` on a service's database, without a service."""

import json
import re

import pytest
from typer.testing import CliRunner

from gangline.cli.commands.token import app
from gangline.errors import UsageError


@pytest.fixture
def ask(tmp_path, monkeypatch):
    site = tmp_path / "site.toml"
    site.write_text(f'[store]\nurl = "file:{tmp_path}/store"\n[serve]\nhome = "{tmp_path}/home"\n')
    monkeypatch.setenv("GANGLINE_SITE", str(site))
    monkeypatch.chdir(tmp_path)

    def run(*words):
        done = CliRunner().invoke(app, words)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.stdout

    return run


def test_token_is_added_listed_and_ended(ask):
    made = json.loads(ask("add", "ci", "--role", "alpha=runner", "--role", "*=reader", "--days", "1", "--json"))
    listed = ask("list")
    assert re.search(rf"{made['digest']}  ci  .*alpha=runner", listed)
    assert made["token"] not in listed
    assert ask("revoke", made["digest"]) == "1 ended\n"
    assert "no tokens yet" in ask("list")


def test_table_for_a_file_holds_no_token_and_keeps_nothing(ask):
    assert "gl_" not in ask("add", "ci", "--role", "alpha=reader", "--file")
    assert "no tokens yet" in ask("list")


@pytest.mark.parametrize("words", [("add", "ci", "--role", "alpha"), ("add", "ci", "--role", "alpha=king"),
                                   ("revoke", "zz"), ("revoke", "0" * 8)])  # fmt: skip
def test_what_is_not_a_role_or_digest_is_refused_with_what_works(ask, words):
    with pytest.raises(UsageError, match=r"wanted|no token has"):
        ask(*words)
