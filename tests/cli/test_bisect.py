"""`gangline bisect` before it trains: what it costs, who agrees, what it refuses."""

import signal
from types import SimpleNamespace

import pytest
from tests.report import records

from gangline.cli.commands.bisect import _run, budget_hours
from gangline.cli.view.bisect_view import BisectView
from gangline.errors import UsageError
from gangline.line.gangs.follow import Interrupted
from gangline.spec.config.site import GpuTable, Site

PRICED = Site(gpu={"a": GpuTable(memory_bytes=1.0, price_per_hour=2.0), "b": GpuTable(memory_bytes=1.0)})


@pytest.mark.parametrize(("text", "hours"), [("2", 2.0), ("0.5h", 0.5), ("3 GPU-h", 3.0), ("30EUR", 15.0)])
def test_a_budget_is_hours_or_money(text, hours):
    assert budget_hours(text, PRICED) == hours


@pytest.mark.parametrize(("text", "site"), [("much", PRICED), ("30USD", PRICED), ("30EUR", Site()), ("-1", PRICED)])
def test_a_budget_that_says_nothing_is_refused_with_one_that_does(text, site):
    with pytest.raises(UsageError, match="2"):
        budget_hours(text, site)


def test_where_no_one_can_agree_a_budget_is_demanded_and_nothing_begins(gangline, workspace, commit):
    good = commit("one")
    commit("two")
    result = gangline("bisect", "loss", "--good", good)
    assert result.exit_code == 2
    assert "--budget 1h" in str(result.exception)
    assert "2 commits · about 6 trainings, up to 24 where values are noisy, to the end" in result.stderr
    assert not (workspace / ".gangline" / "store" / "bisects").exists()


@pytest.mark.parametrize(
    "arguments",
    [["--good", "HEAD"], ["--good", records.BASE_RUN], ["--good", "nowhere"], ["--good", "HEAD", "--format", "pdf"],
     ["--good", "HEAD", "--error", "0.7"]],
)  # fmt: skip
def test_ends_and_options_that_make_no_search_are_usage_errors(gangline, arguments):
    assert gangline("bisect", "loss", *arguments).exit_code == 2


class Faulty:
    """A search during which the machine, or a person, says stop."""

    state = SimpleNamespace(id="demo-bisect-aaaaaa")

    def __init__(self, strike):
        self.strike = strike

    def run(self, *, tell):
        self.strike()


def interrupted():
    raise Interrupted("stopped by Ctrl-C; gangline run goes on with demo-1")


def test_who_is_stopped_learns_that_the_same_command_continues(capsys):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit):
        _run(Faulty(lambda: signal.raise_signal(signal.SIGTERM)), BisectView())
    assert capsys.readouterr().err == "interrupted: the same command resumes demo-bisect-aaaaaa\n"
    assert signal.getsignal(signal.SIGTERM) == before
    with pytest.raises(Interrupted, match="the same command resumes demo-bisect-aaaaaa"):
        _run(Faulty(interrupted), BisectView())


@pytest.fixture
def commit(workspace):
    from tests.line import repositories

    return lambda text: repositories.commit(workspace, {"train.py": f"# {text}\n"}, text)
