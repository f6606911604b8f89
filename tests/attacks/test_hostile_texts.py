"""P10, texts of strangers: on every surface each is one visible line, escaped once, and mentions nobody."""

import io
import json
import logging
import sys
from dataclasses import replace
from xml.etree.ElementTree import fromstring

import pytest
import structlog
import yaml
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console
from tests.attacks.hostile import CALM, EVIL, Rendered, hostile, steering
from tests.report import records
from tests.report import test_profile_page as profiles
from tests.report.test_model_page import picture as model_picture
from tests.serve.pages import samples
from typer.testing import CliRunner

from gangline.cli.commands.list import _row as list_row
from gangline.cli.log_setup import set_up_logs
from gangline.cli.main import app, main
from gangline.cli.output import columns, print_json
from gangline.cli.terminal import say
from gangline.cli.view.bisect_view import BisectView
from gangline.cli.view.live import LiveView
from gangline.cli.view.run_view import JsonView, PlainView
from gangline.errors import IntegrityError
from gangline.forge.pull_request_comment import comment_marker, comment_text
from gangline.forge.status_messages import statuses
from gangline.launch.kubernetes.objects.manifest import to_yaml
from gangline.launch.protocol import GangEvent, GangStatus
from gangline.registry.model_folder import render_card
from gangline.report.bisection.pages import render_html_bisection, render_markdown_bisection
from gangline.report.bisection.text import Culprit, render_bisection
from gangline.report.comparison.compare import compare
from gangline.report.comparison.pages import render_html_comparison, render_markdown_comparison
from gangline.report.comparison.text import render_comparison
from gangline.report.comparison.types import ComparisonContext, FileChange
from gangline.report.model_page import render_model_page
from gangline.report.profile import render_profile_page
from gangline.report.run.html import render_html
from gangline.report.run.junit import render_junit
from gangline.report.run.markdown import render_markdown
from gangline.report.run.terminal import one_line, page
from gangline.report.text import markdown
from gangline.sanitize import one_line as clean_line
from gangline.sanitize import sanitized, to_json
from gangline.serve.pages import render_compare, render_problem
from gangline.spec.bisect import BisectCommit, BisectState
from gangline.spec.mesh import Mesh
from gangline.spec.record import Record
from gangline.storage.folder.store import FolderStore

pytestmark = pytest.mark.row("P10")
RECORDS = {name: getattr(records, name)() for name in ("passed", "refused", "failed", "bare")} | {
    "running": samples.running(),
    "waiting": samples.waiting(),
}
FILES = (FileChange(path=EVIL, added=1, removed=2), FileChange(path=EVIL))
TAGS = {"p", "strong", "em", "br", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "code", "pre",
        "ul", "li", "a", "h1", "h2"}  # fmt: skip


COMMANDS = (
    "show", "show --oneline", "show --json", "list", "list --json", "diff", "diff --json", "diff --format markdown",
    "report --format markdown", "report --format junit", "report --format html --out -",
)  # fmt: skip


def search(text):
    suspects = tuple(
        BisectCommit(
            sha=text, subject=text, side=side, values={"1": 2.0}, origin=text, reason=text * (side == "skipped")
        )
        for side in ("good", "skipped", "bad")
    )
    return BisectState(id=text, project=text, metric=text, at=60, steps=120, better="lower", seeds=2, suspects=suspects,
                       resource="cpu", error=0.01, ending="found", first_bad=text, notes=(text,))  # fmt: skip


@pytest.fixture(params=RECORDS, scope="module")
def record(request):
    return RECORDS[request.param]


def texts_of(record, text):
    """What each surface of plain text shows."""
    bad = hostile(record, text)
    comparison = compare(hostile(records.passed(), text), bad, ComparisonContext(files=FILES))
    state = search(text)
    return {
        "page": page(bad),
        "one line": one_line(bad),
        "list": columns([list_row(bad)]),
        "diff": render_comparison(comparison),
        "bisect": render_bisection(state, Culprit(files=FILES)),
        "statuses": "\n".join(each.description for each in statuses(bad, running="train", live=text)),
    }


def test_terminals_are_not_steered_and_no_line_is_forged(record):
    calm = texts_of(record, CALM)
    for surface, text in texts_of(record, EVIL).items():
        assert not steering(text), surface
        assert text.count("\n") == calm[surface].count("\n"), surface
        text.encode()


def views(text, monkeypatch):
    """What each view writes of a run, with a gang that says `text`."""
    bad = hostile(records.refused(), text)
    lines, screen = [], io.StringIO()
    console = Console(file=screen, force_terminal=True, color_system=None, width=200, highlight=False)
    for view in (
        PlainView(lines.append, clock=iter(range(0, 100_000, 20)).__next__),
        JsonView(lines.append),
        LiveView(console),
    ):
        with view:
            view.run_started(bad)
            for name, info in bad.stages.items():
                view.stage_started(name)
                view.progress(name, GangEvent(kind="waiting", text=text))
                view.progress(name, GangEvent(kind="note", text=text))
                view.progress(name, GangEvent(kind="state", status=GangStatus(state="running", waiting=text)))
                view.progress(name, GangEvent(kind="progress", data={"event": "job_started", "seed": text, "jobs": 2}))
                view.stage_ended(name, info)
            view.note(text)
            view.run_ended(bad)
    return "\n".join(lines), screen.getvalue()


def test_views_of_a_run_are_not_steered(monkeypatch):
    lines, screen = views(EVIL, monkeypatch)
    assert not steering(lines)
    own = views(CALM, monkeypatch)[1]
    assert set(steering(screen)) <= set(steering(own)) <= {"\x1b", "\r"}
    for sequence in ("\x1b]", "\x1b[2J", "\x1b[31m"):
        assert sequence not in screen
    assert screen.count("PASSED  all gates") == 0


def test_a_search_on_a_terminal_is_not_steered(monkeypatch):
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", screen)
    view = BisectView()
    view.tell(search(EVIL))
    view.run_started(hostile(records.bare()))
    view.progress("train", GangEvent(kind="progress", data={"step": EVIL}))
    view.note(EVIL)
    assert not steering(screen.getvalue().replace("\r\x1b[2K", ""))


def test_pages_hold_text_and_nothing_that_acts(record):
    bad, base = hostile(record), hostile(records.passed())
    other = replace(base, run=replace(base.run, id="b-1-c"))
    pages = {
        "report": render_html(bad, base),
        "diff": render_html_comparison(compare(base, bad, ComparisonContext(files=FILES))),
        "bisect": render_html_bisection(search(EVIL), Culprit(files=FILES, patch=f"+{EVIL}\n-{EVIL}")),
        "run": samples.run_page(bad, base=base),
        "compare": render_compare([bad, other], principal=samples.MAINTAINER),
        "profile": render_profile_page(EVIL, EVIL, [hostile(profiles.summary(0))], {0: EVIL}),
        "model": render_model_page(EVIL, hostile(model_picture(Mesh(dp_shard=2)))),
        "problem": render_problem(404, EVIL),
        "list": samples.list_page(rows=rows(bad)),
    }
    for name, text in pages.items():
        found = Rendered(text)
        assert not steering(text), name
        assert not {"img", "iframe", "object", "blink"} & found.tags, name
        assert not [each for each in found.attributes if each.startswith("on")], name
        assert not [each for each in found.targets if each.lstrip().lower().startswith(("javascript:", "data:"))], name
        assert "gangline:bytegpt" not in "".join(found.comments), name
        assert text.count("<script") <= text.count("<script src="), name
        assert not [each for each in found.escaped_twice if each.startswith("&")], name


def rows(bad):
    """Two of a record that is hostile but for its id: the key says that."""
    row = samples.row_of(replace(bad, run=replace(bad.run, id="bytegpt-9f31c2a0-aaaaaa")))
    return [row, replace(row, run="bytegpt-9f31c2a0-bbbbbb")]


def test_markdown_is_text_escaped_once_and_mentions_no_one(record):
    bad, base = hostile(record), hostile(records.passed())
    drawn = {
        "report": render_markdown(bad),
        "diff": render_markdown_comparison(compare(base, bad, ComparisonContext(files=FILES))),
        "bisect": render_markdown_bisection(search(EVIL), Culprit(files=FILES)),
        "comment": comment_text(bad, None),
        "card": render_card(bad, model=EVIL, version=1, task=EVIL, weights_bytes=1, key_id=EVIL),
    }
    for name, text in drawn.items():
        found = Rendered(MarkdownIt("commonmark", {"html": True}).enable("table").render(text))
        assert not steering(text), name
        assert not found.mentions, name
        assert not found.escaped_twice, name
        assert found.tags <= TAGS, name
        assert all(each.startswith("https://x.example/") for each in found.targets), name
        assert found.comments == ([comment_marker("bytegpt")[4:-3]] if name == "comment" else []), name


def test_no_line_of_a_comment_is_an_order_to_the_forge(record):
    """GitLab obeys `/merge` at the beginning of a line, as whoever wrote the comment: that is us."""
    text = comment_text(hostile(record, "/merge"), None)
    assert "/merge" in text
    assert not [line for line in text.splitlines() if line.lstrip().startswith("/")]


def test_junit_is_xml_and_json_is_json_whatever_a_record_holds(record, capsys):
    bad = hostile(record)
    text = render_junit(bad)
    assert not steering(text)
    fromstring(text)
    print_json(bad)
    printed = capsys.readouterr().out
    assert not steering(printed)
    assert Record.from_json(printed) == bad


def test_half_a_character_is_refused_where_it_is_read_and_breaks_no_line():
    whole = records.bare().to_json()
    assert Record.from_json(whole) == records.bare()
    with pytest.raises(IntegrityError, match="lone surrogate"):
        Record.from_json(whole.replace(b'"subject":"', b'"subject":"\\ud800'))
    assert Record.from_json(whole.replace(b'"subject":"', b'"subject":"\\ud83d\\ude00')).commit.subject.startswith("😀")
    page(replace(records.bare(), commit=replace(records.bare().commit, subject="\ud800"))).encode()


def test_commands_on_a_store_of_such_records_print_nothing_that_steers(tmp_path, monkeypatch):
    repo = tmp_path / "repo"
    (repo / ".gangline").mkdir(parents=True)
    store = FolderStore(repo / ".gangline" / "store")
    for made in (records.passed(), records.refused()):
        bad = hostile(made, EVIL)
        bad = replace(
            bad,
            run=replace(bad.run, id=made.run.id, project=made.run.project),
            commit=replace(bad.commit, sha=made.commit.sha, base=made.commit.base),
        )
        store.put(f"{made.prefix}/record.json", bad.to_json())
    monkeypatch.chdir(repo)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for line in COMMANDS:
        words = line.split()
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, (words, done.exception)
        assert done.stdout.count("\n") >= 1
        assert not steering(done.output), words


def test_whatever_a_command_or_an_error_repeats_steers_no_terminal(monkeypatch, capsys):
    say(EVIL)
    monkeypatch.setattr(sys, "argv", ["gangline", "drill", EVIL.replace("\x00", "")])
    monkeypatch.setenv("GANGLINE_DEBUG", "1")
    with pytest.raises(SystemExit):
        main()
    printed = capsys.readouterr()
    assert "PASSED  all gates" in printed.out
    assert not steering(printed.out + printed.err)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_logs_hold_one_line_an_event_a_traceback_and_no_variables(is_terminal, monkeypatch):
    screen = io.StringIO()
    screen.isatty = lambda: is_terminal
    monkeypatch.setattr(sys, "stderr", screen)
    set_up_logs({"NO_COLOR": "1"})
    log = structlog.get_logger()
    log.warning(f"event {EVIL}", path=EVIL, many=[EVIL], error=ValueError(EVIL))
    canary = "-".join(["canary", "of", "a", "variable"])
    try:
        int(f"{EVIL}{len(canary)}")
    except ValueError as error:
        log.exception("broke")
        log.error("again", exc_info=error)  # noqa: TRY400  # as the service logs a request that broke
    text = screen.getvalue()
    assert not steering(text)
    assert text.count("Traceback (most recent call last)") == 2
    assert "ValueError" in text
    assert canary not in text
    if not is_terminal:
        events = [json.loads(line) for line in text.splitlines()]
        assert [each["event"][:5] for each in events] == ["event", "broke", "again"]
        assert "\n" not in events[0]["path"]
        assert "test_hostile_texts.py" in events[1]["exception"]


def test_what_libraries_log_is_an_event_like_ours(monkeypatch):
    """uvicorn logs the traceback of a request that broke, urllib3 the headers of an answer that it cannot read."""
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    set_up_logs({})
    try:
        int(EVIL)
    except ValueError:
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application\n")
    logging.getLogger("urllib3.connection").warning("Failed to parse headers (url=%s)", EVIL)
    text = screen.getvalue()
    assert not steering(text)
    broke, headers = map(json.loads, text.splitlines())
    assert (broke["library"], broke["level"]) == ("uvicorn.error", "error")
    assert "test_hostile_texts.py" in broke["exception"]
    assert "PASSED all gates" in headers["event"]


@given(st.dictionaries(st.text(max_size=5), st.one_of(st.text(), st.just(EVIL)), max_size=4))
def test_what_emit_writes_is_read_back_as_it_was(thing):
    text = to_yaml([thing])
    assert list(yaml.safe_load_all(text)) == [thing]
    assert not steering(text)


@given(text=st.text(st.characters()))
def test_markdown_of_any_text_is_that_text_and_no_more(text):
    found = Rendered(MarkdownIt("commonmark", {"html": True}).enable("table").render(f"x {markdown(text, 1000)} y"))
    assert found.tags == {"p"}
    assert "".join(found.texts).replace("\u200b", "").split() == f"x {clean_line(text)} y".split()
    assert not found.mentions


@given(text=st.text(st.characters()))
def test_a_text_that_is_shown_is_one_visible_line_and_stays_as_it_is(text):
    line = clean_line(text)
    assert not [each for each in line if each in "\n\r\t\x1b" or 0x7F <= ord(each) < 0xA0]
    assert clean_line(line) == line
    assert sanitized({text: (text,)}) == {line: (line,)}
    assert json.loads(to_json([text])) == [text]
