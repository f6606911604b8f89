"""A finished search in a real optuna-dashboard, opened by a real browser; it reads, and changes nothing."""

import os
import subprocess
import sys
import time
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
from tests.report import searches
from tests.report.browser import CHROMIUM, Browser
from tests.search.stored import LR, store_search
from tests.tools.__main__ import tools_folder

from gangline.storage.open import open_store

pytestmark = pytest.mark.tools
SHOWN = "document.body.innerText"


@pytest.fixture
def dashboard(tmp_path):
    """Address of a dashboard over a store with one search, and the store."""
    places = sorted((tools_folder() / "optuna-dashboard" / "lib").glob("python*/site-packages"))
    if not places:
        pytest.skip("no optuna-dashboard; make tools installs it")
    (tmp_path / ".gangline").mkdir()
    store = open_store(f"file:{tmp_path / '.gangline' / 'store'}")
    store_search(store, searches.request(space={LR: searches.request().space[LR]}), trials=12)
    command = [sys.executable, "-m", "gangline", "search", "dashboard", searches.ID, "--repo", str(tmp_path)]
    environ = os.environ | {"PYTHONPATH": str(places[0]), "XDG_CONFIG_HOME": str(tmp_path)}
    process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    yield url, store
    process.terminate()
    process.wait(10)
    process.stdout.close()


def answer(url, method, path, host=None):
    connection = HTTPConnection(urlsplit(url).netloc, timeout=10)
    try:
        connection.request(method, path, headers={} if host is None else {"Host": host})
        return connection.getresponse().status
    finally:
        connection.close()


def test_trials_are_shown_and_nothing_is_changed(dashboard):
    url, store = dashboard
    assert url.startswith("http://127.0.0.1:")
    before = [each.key for each in store.list(f"searches/bytegpt/{searches.ID}/journal/")]
    assert answer(url, "GET", "/api/studies") == 200
    assert answer(url, "GET", "/api/studies", host="attacker.example") == 403
    assert answer(url, "DELETE", "/api/studies/0") == 403
    if CHROMIUM is not None:
        browser = Browser()
        browser.visit(f"{url}studies/0/trials", width=1300)
        for _ in range(100):
            if "Trial 11" in (text := str(browser.value(SHOWN))):
                break
            time.sleep(0.1)
        browser.close()
        assert "Trial 11" in text
        assert searches.ID in text
    assert [each.key for each in store.list(f"searches/bytegpt/{searches.ID}/journal/")] == before
