"""The picture of the README: small, and few colours are as good as many."""

import base64
from pathlib import Path

import pytest
from tests.module_files import load_module
from tests.report.browser import CHROMIUM, Browser

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
READ = """
(async url => {
  const image = new Image(); image.src = url; await image.decode();
  const pen = new OffscreenCanvas(image.naturalWidth, image.naturalHeight).getContext("2d");
  pen.drawImage(image, 0, 0);
  return [[2, 2], [42, 2], [82, 2]].map(([x, y]) => [...pen.getImageData(x, y, 1, 1).data].slice(0, 3));
})("data:image/png;base64,%s")
"""


def few_colours():
    return load_module(IMAGES / "few_colours.py", "few_colours")


def test_the_picture_loads_quickly():
    assert 50_000 < (IMAGES / "five-surfaces.png").stat().st_size < 250_000


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH")
def test_flat_colours_are_kept_a_rare_one_too(tmp_path):
    page = tmp_path / "page.html"
    stripes = "".join(f"<i style='background:{each}'></i>" for each in ("#14202e", "#5ad69a", "#ffd43b"))
    page.write_text(f"<style>body{{margin:0}} i{{float:left;width:40px;height:9px}}</style>{stripes}")
    browser = Browser()
    try:
        browser.show(page, width=800, dark=False)
        shot = base64.b64decode(browser.call("Page.captureScreenshot", format="png")["data"])
        small = few_colours().in_few_colours(browser, shot)
        asked = {"expression": READ % base64.b64encode(small).decode(), "awaitPromise": True, "returnByValue": True}
        seen = browser.call("Runtime.evaluate", **asked)["result"]["value"]
    finally:
        browser.close()
    assert seen == [[0x14, 0x20, 0x2E], [0x5A, 0xD6, 0x9A], [0xFF, 0xD4, 0x3B]]
