"""The pages in a real browser, under the service's own policy: they fit, ask for nothing else, read well, and move."""

import json

import pytest
from tests.report import records
from tests.report.browser import CHROMIUM, Browser
from tests.report.test_browser import WIDER
from tests.serve.pages import samples
from tests.serve.pages.site import Site

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH")
PAGES = samples.pages()
RUN = f"/runs/{records.THIS_RUN}"
BAD = "rgb(184, 72, 10)"
CONTRAST = """(() => {
    const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    const flat = (layers) => { canvas.clearRect(0, 0, 1, 1); for (const c of layers) { canvas.fillStyle = c;
        canvas.fillRect(0, 0, 1, 1) } return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3) };
    const lum = (rgb) => rgb.map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
        .reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
    const ground = (e) => { const all = [];
        for (; e; e = e.parentElement) all.unshift(getComputedStyle(e).backgroundColor);
        return all };
    const low = [];
    for (const e of document.querySelectorAll('body *')) {
        const says = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
        if (!says || e.closest('svg, .aside, noscript, .skip') || !e.checkVisibility()) continue;
        const [a, b] = [lum(flat([...ground(e), getComputedStyle(e).color])), lum(flat(ground(e)))];
        const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
        if (ratio < 4.5) low.push(`${e.tagName}.${e.className} ${ratio.toFixed(2)} ${e.textContent.slice(0, 30)}`);
    }
    return low })()"""
FOCUS = """(() => { const e = document.activeElement, s = getComputedStyle(e);
    return [e.tagName, e.name || e.textContent.trim().slice(0, 20),
        e === document.body || parseFloat(s.outlineWidth) >= 2] })()"""


@pytest.fixture(scope="module")
def browser():
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture
def site(browser):
    site = Site()
    site.pages |= {f"/{name}": page for name, page in PAGES.items()}
    yield site
    browser.visit("about:blank", width=800)
    site.close()


@pytest.mark.parametrize("name", sorted(PAGES))
def test_page_fits_three_widths_asks_only_its_own_files_and_complains_of_nothing(browser, site, name):
    browser.visit(f"{site.url}/{name}", width=1600)
    for width in (1600, 768, 320):
        browser.resize(width)
        assert browser.value("document.documentElement.scrollWidth") <= width
        assert browser.value(WIDER.replace("'.scroll'", "'.scroll, .aside, .skip, thead'")) == []
    own = {f"/{name}", "/static/style.css", "/static/live.js", "/static/icon.svg"}
    followed = {f"/api/v1/runs/{run}/events" for run in (records.BASE_RUN, records.THIS_RUN)}
    assert {url.removeprefix(site.url).split("?")[0] for url in browser.asked()} <= own | followed
    assert browser.complaints() == []
    assert browser.value("window.hacked") is None


@pytest.mark.parametrize("name", ["list", "large", "waiting", "running", "compare", "login", "tricky-list"])
@pytest.mark.parametrize("dark", [False, True])
def test_every_word_contrasts_with_its_ground(browser, site, name, dark):
    browser.visit(f"{site.url}/{name}", width=1300, dark=dark)
    browser.value("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert browser.value(CONTRAST) == []
    ground = browser.value("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(18, 23, 29)" if dark else "rgb(245, 247, 249)")


def test_keyboard_reaches_everything_and_shows_where_it_is(browser, site):
    browser.visit(f"{site.url}/list", width=1300)
    reached = []
    for _ in range(60):
        browser.press("Tab", 9)
        reached.append(browser.value(FOCUS))
    assert all(visible for _, _, visible in reached)
    names = [name for _, name, _ in reached]
    assert names[:3] == ["Skip to the content", "gangline", "Log out"]
    assert {"text", "project", "verdict", "Filter", "run"} <= set(names)


def test_form_of_the_list_asks_for_what_was_typed(browser, site):
    site.pages["/runs"] = PAGES["list"]
    browser.visit(f"{site.url}/runs", width=1300)
    browser.value("document.getElementById('f-branch').value = 'a & b'")
    browser.click(".filters button")
    browser.wait_for("location.search.length > 0")
    assert any("branch=a+%26+b" in path for path in site.asked)


def test_ticked_runs_are_compared_two_to_ten(browser, site):
    browser.visit(f"{site.url}/list", width=1300)
    button = "document.querySelector('[data-pick-button]')"
    tick = "document.querySelectorAll('input[name=run]')[%d].click()"
    assert browser.value(f"{button}.disabled") is True
    for number in range(10):
        browser.value(tick % number)
    assert browser.value(f"{button}.textContent") == "Compare 10 runs"
    assert browser.value("document.querySelectorAll('input[name=run]')[11].disabled") is True
    for number in range(8):
        browser.value(tick % number)
    browser.click("[data-pick-button]")
    browser.wait_for("location.pathname == '/compare'")
    assert [path.count("run=bytegpt-") for path in site.asked if path.startswith("/compare")] == [2]


def test_cancel_is_sent_only_after_a_second_look_and_carries_the_forms_token(browser, site):
    browser.visit(f"{site.url}/running", width=1300)
    field = "document.querySelector('details.cancel [name=reason]')"
    assert browser.value(f"{field}.checkVisibility()") is False
    browser.value("document.querySelector('details.cancel summary').click()")
    assert browser.value(f"{field}.checkVisibility()") is True
    browser.value(f"{field}.value = 'wrong data'")
    browser.click("details.cancel button")
    browser.wait_for("document.title == 'sent'")
    assert site.sent == [(f"{RUN}/cancel", {"csrf": ["form-of-session"], "reason": ["wrong data"]})]


def test_numbers_of_the_gang_move_without_moving_the_page(browser, site):
    browser.visit(f"{site.url}/running", width=1300)
    height = browser.value("document.documentElement.scrollHeight")
    for step in (63, 64):
        said = {"stage": "train", "step": step, "steps": 120, "loss": 2.5, "eta_seconds": 6.4, "sentence": f"at {step}"}
        site.say("progress", json.dumps(said | {"tokens_per_second": 9234.0}))
    browser.wait_for("document.querySelector('[data-field=step]').textContent == '64'")
    shown = {name: browser.value(f"document.querySelector('[data-field={name}]').textContent") for name in
             ("loss", "eta_seconds", "tokens_per_second", "sentence")}  # fmt: skip
    assert shown == {"loss": "2.5", "eta_seconds": "6.4 s", "tokens_per_second": "9.2 k", "sentence": "at 64"}
    assert browser.value("document.querySelector('progress').value") == 64
    assert browser.value("document.querySelector('[data-trace]').points.length") == 6
    assert browser.value("document.documentElement.scrollHeight") == height
    assert browser.complaints() == []


def test_record_that_changed_renews_its_parts_and_keeps_what_the_reader_opened(browser, site):
    browser.visit(f"{site.url}/running", width=1300)
    browser.value("document.querySelector('details.cancel summary').click()")
    browser.value("document.getElementById('reason').value = 'because'; document.getElementById('reason').focus()")
    browser.value("document.querySelector('[data-part=plan]').mine = 1")
    later = samples.running()
    site.pages["/running"] = samples.run_page(later, progress=None).replace("at stage train", "at stage evaluate")
    site.say("record", "{}")
    browser.wait_for("document.querySelector('.verdict').textContent.includes('at stage evaluate')")
    assert browser.value("document.querySelector('details.cancel').open") is True
    assert browser.value("document.getElementById('reason').value") == "because"
    assert browser.value("document.activeElement.id") == "reason"
    assert browser.value("document.querySelector('[data-part=plan]').mine") == 1, "a part that is equal stays"


def test_end_of_the_run_shows_its_verdict_and_ends_the_stream(browser, site):
    browser.visit(f"{site.url}/running", width=1300)
    site.pages["/running"] = PAGES["refused"]
    site.say("end", "{}")
    browser.wait_for("document.querySelector('.verdict').textContent.includes('refused')")
    assert browser.value("document.querySelector('[data-now]')") is None
    assert browser.value("getComputedStyle(document.querySelector('.verdict strong')).backgroundColor") == BAD
    assert browser.value("document.title").startswith("refused")
    assert sum(path.endswith("/events") for path in site.asked) == 1
    assert browser.value("document.querySelector('[data-announce]').textContent") == "refused · narrower"


def test_page_that_is_refused_its_events_asks_for_itself_again(browser, site):
    site.pages["/running"] = (
        PAGES["running"].replace("/events", "/nothing").replace('data-poll="10"', 'data-poll="0.2"')
    )
    browser.visit(f"{site.url}/running", width=1300)
    site.pages["/running"] = PAGES["refused"]
    browser.wait_for("document.querySelector('.verdict').textContent.includes('refused')")
    assert browser.value("document.querySelector('[data-announce]').textContent") == "refused · narrower"


def test_tricks_in_events_are_text(browser, site):
    browser.visit(f"{site.url}/running", width=1300)
    site.say("progress", json.dumps({"stage": samples.TRICKS, "sentence": samples.TRICKS, "step": 1}))
    browser.wait_for("document.querySelector('[data-field=sentence]').textContent.includes('<script>')")
    assert browser.value("window.hacked") is None
    assert browser.value("document.documentElement.scrollWidth") <= 1300


def test_list_with_something_open_renews_itself_and_keeps_ticks(browser, site):
    site.pages["/list"] = PAGES["list"].replace('data-poll="10"', 'data-poll="0.2"')
    browser.visit(f"{site.url}/list", width=1300)
    browser.value("document.querySelectorAll('input[name=run]')[3].click()")
    site.pages["/list"] = site.pages["/list"].replace("Change 7", "Renamed while you look")
    browser.wait_for("document.querySelector('.runs').textContent.includes('Renamed while you look')")
    assert browser.value("document.querySelectorAll('input[name=run]')[3].checked") is True


def test_pages_read_and_work_without_script(browser, site):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        for name in ("list", "running", "compare"):
            browser.visit(f"{site.url}/{name}", width=1300)
            shown = browser.call("DOM.getDocument", depth=-1)["root"]
            assert "button" in json.dumps(shown) or name == "compare"
        assert not any(path.endswith("/events") for path in site.asked)
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
