"""Draws `report.png`: `python docs/images/report.py REPORT.html`, a report from its head down to *Training*."""

import base64
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))  # the browser belongs to the tests
WIDTH = 1000
BOTTOM = """
document.documentElement.style.overflow = "hidden";  // a picture has no scroll bar
Math.ceil([...document.querySelectorAll("section")].find(each => each.querySelector("h2").textContent == "Training")
  .getBoundingClientRect().bottom + 8)
"""


def main(report: Path) -> None:
    from few_colours import in_few_colours
    from tests.report.browser import Browser

    browser = Browser()
    try:
        browser.visit(report.resolve().as_uri(), width=WIDTH)
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": int(browser.value(BOTTOM)), "scale": 1}
        shot = browser.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        (HERE / "report.png").write_bytes(in_few_colours(browser, base64.b64decode(shot["data"])))
    finally:
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
