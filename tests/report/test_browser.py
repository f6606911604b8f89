"""The page in a real browser: nothing overflows, nothing is requested, nothing complains, dark is dark."""

import pytest
from tests.report import records
from tests.report.browser import CHROMIUM, Browser

from gangline.report.run.html import render_html

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH")
PAGES = ("passed", "refused", "failed", "bare", "large")
WIDER = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll') && !e.closest('svg')
    && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + '.' + e.className)"""


@pytest.fixture(scope="module")
def browser():
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name in PAGES:
        (folder / f"{name}.html").write_text(render_html(getattr(records, name)(), records.passed()), "utf-8")
    return folder


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [1200, 390])
def test_page_fits_its_window_and_asks_for_nothing(browser, pages, name, width):
    browser.show(pages / f"{name}.html", width=width, dark=False)
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value(WIDER) == []
    asked = [e["params"]["request"]["url"] for e in browser.events if e.get("method") == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("file:")] == []
    assert len(asked) == 1
    complaints = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
    assert [e for e in browser.events if e.get("method") in complaints] == []


def test_dark_ground_is_dark_and_its_text_is_readable(browser, pages):
    contrast = """(() => { const rgb = c => c.match(/[\\d.]+/g).slice(0, 3).map(Number);
        const lum = c => rgb(c).map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
            .reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
        const back = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
            if (c !== 'rgba(0, 0, 0, 0)') return c } return 'rgb(255, 255, 255)' };
        return Math.min(...[...document.querySelectorAll('h1,h2,p,td,th,dd,dt,li,small,strong,figcaption span')]
            .filter(e => e.innerText.trim()).map(e => { const [a, b] = [lum(getComputedStyle(e).color), lum(back(e))];
                return (Math.max(a, b) + .05) / (Math.min(a, b) + .05) })) })()"""
    for dark in (False, True):
        browser.show(pages / "refused.html", width=1200, dark=dark)
        assert browser.value(contrast) >= 4.5
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(18, 23, 29)"


def test_page_reads_in_order_without_its_style_sheet(browser, pages):
    browser.show(pages / "refused.html", width=1200, dark=False)
    browser.value("document.querySelector('style').remove()")
    assert browser.value("document.documentElement.scrollWidth") <= 1400
    headings = browser.value("[...document.querySelectorAll('h1,h2')].map(e => e.innerText.trim())")
    assert headings[:4] == ["narrower", "Gates", "Stages", "Loss"]
