"""A browser at the real service: its policy lets the pages' own style and script in, and nothing else is asked for."""

import pytest
from tests.report.browser import CHROMIUM, Browser

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH")


@pytest.fixture
def browser():
    shown = Browser()
    yield shown
    shown.close()


def test_person_logs_in_reads_and_stops_a_run(world, browser):
    run = world.run("alpha", "open")
    browser.visit(f"{world.url}/runs/{run}", width=1200)
    token = world.tokens["alpha", "runner"]
    browser.value(f"document.querySelector('[name=token]').value = '{token}'")
    browser.value("document.querySelector('form').requestSubmit()")
    browser.wait_for(f"document.querySelector('form[action$=\"/{run}/cancel\"]') !== null")  # led on to the run
    assert browser.value("getComputedStyle(document.body).margin") == "0px"
    browser.value("document.querySelector('form[action$=\"/cancel\"] [name=reason]').value = 'enough <b>'")
    browser.value("document.querySelector('form[action$=\"/cancel\"]').requestSubmit()")
    browser.wait_for("document.body.textContent.includes('cancelled by runner of alpha: enough <b>')")
    browser.wait_for("document.querySelector('form[action$=\"/cancel\"]') === null")  # live.js saw it end
    assert browser.complaints() == []
    for path in ("/runs", f"/runs/{world.run('alpha')}", f"/compare?run={world.run('alpha')}&run={run}"):
        browser.visit(world.url + path, width=1200)
        assert browser.value("document.querySelector('main') !== null")
        assert browser.complaints() == []
        assert all(url.startswith((world.url, "data:", "about:")) for url in browser.asked())
