"""Draws `five-surfaces.png`: `python docs/images/draw.py [FOLDER]`.

A small classifier is pushed to a real forge, trained by a real service, scraped by a real Prometheus; what each
surface then showed is set side by side. It needs what the tests marked `tools` need (`make tools`, prometheus) and
Chromium. The scene's outputs are kept in FOLDER, and taken from there where they are already.
"""

import base64
import json
import re
import sys
import tempfile
import textwrap
from html import escape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from jinja2 import Environment, FileSystemLoader
from markdown import markdown
from markupsafe import Markup

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))  # the scene and the browser belong to the tests
STEPS, METRIC = 300, "accuracy"
LONG = ("run", "commit")
"""Properties without room."""
QUERIES = (
    'gangline_eval_value{{metric="accuracy", {run}}}',
    'gangline_band_center{{metric="accuracy", {run}}}',
    "gangline_run_verdict{{{run}}}",
    'gangline_run_gate{{gate="quality", {run}}}',
    'gangline_eval_value{{metric="step_seconds", {run}}}',
)

MARK = """
(value => document.querySelectorAll(".tiles b").forEach(tile => {
  if (value && tile.textContent.startsWith(value))
    Object.assign(tile.style, {background: "#ffd43b", borderRadius: "6px", padding: "0 8px", width: "fit-content"});
}))(%s)
"""
"""Marks the number on the page of a run, whose style sheet has no such class."""


def main() -> None:
    with tempfile.TemporaryDirectory() as fresh:
        kept = Path(sys.argv[1] if len(sys.argv) > 1 else fresh)
        if not (kept / "facts.json").exists():
            keep(kept)
        (kept / "five-surfaces.html").write_text(compose(kept))
        picture = photograph((kept / "five-surfaces.html").as_uri(), width=1600)
        (HERE / "five-surfaces.png").write_bytes(picture)


def keep(folder: Path) -> None:
    """Play the scene, and keep what every surface showed."""
    from tests.five_surfaces.scene import BRANCH, SUBJECT, played
    from tests.forge.gitea import running

    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, running() as gitea, played(Path(name), gitea, steps=STEPS) as scene:
        demand_agreement(scene)
        for surface, text in scene.texts.items():
            (folder / surface).write_text(text)
        record, mine = scene.record, f'run="{scene.record.run.id}"'
        facts = {
            "value": shown_value(scene), "branch": BRANCH, "subject": SUBJECT, "commit": record.commit.sha[:8],
            "pull_request": scene.pull_request, "ranks": record.plan.world_size, "steps": record.plan.steps,
            "seeds": record.metrics[METRIC].base_band.n, "run": record.run.id,
            "series": {ask: scene.server.query(ask.format(run=mine)) for ask in QUERIES},
        }  # fmt: skip
        token = scene.service.token_file.read_text().strip()
        page = photograph(
            f"{scene.service.url}/runs/{record.run.id}", width=1180, height=640, token=token, value=facts["value"]
        )
        (folder / "page.png").write_bytes(page)
        (folder / "facts.json").write_text(json.dumps(facts, indent=1))


def demand_agreement(scene: Any) -> None:
    """Surfaces that differ are no picture of ours."""
    from tests.five_surfaces.readers import disagreements
    from tests.five_surfaces.scene import read_all

    if said := disagreements(read_all(scene, METRIC)):
        sys.exit("the surfaces differ: " + "; ".join(said))


def shown_value(scene: Any) -> str:
    from tests.five_surfaces.readers import read_terminal

    return str(read_terminal(scene.texts["terminal"], METRIC).value)


def compose(kept: Path) -> str:
    facts = json.loads((kept / "facts.json").read_text())
    value = facts["value"]
    screenshot = base64.b64encode((kept / "page.png").read_bytes()).decode()
    templates = Environment(loader=FileSystemLoader(HERE), autoescape=True)
    return templates.get_template("five-surfaces.html.j2").render(
        {
            **facts,
            "value_lit": lit(value, value),
            "screenshot": f"data:image/png;base64,{screenshot}",
            "comment": lit(comment_html((kept / "comment").read_text()), value),
            "terminal": lit(terminal_html((kept / "terminal").read_text()), value),
            "junit": lit(junit_html((kept / "junit").read_text()), value),
            "series": [
                (ask.format(run=f'run="{facts["run"]}"'), lit(answer(got), value))
                for ask, got in facts["series"].items()
            ],
        }
    )


def lit(html: str, value: str) -> Markup:
    """The number that all of them show, marked; also where more digits of it follow."""
    marked = re.sub(rf"(?<![\d.]){re.escape(value)}(?=\D|$|\d{{4}})", f"<mark>{value}</mark>", html)
    return Markup(marked)  # noqa: S704  # built here from escaped text


def comment_html(text: str) -> str:
    """As a forge shows it, single recalls left out, up to what is folded."""
    head = text.partition("<details>")[0].splitlines()
    wanted = [line for line in head if not line.startswith("| ") or re.match(r"\| (\||acc|eval)", line)]
    return markdown("\n".join(wanted), extensions=["tables"])


def terminal_html(text: str) -> str:
    """Its lines but for stages and single recalls, cut at the edge of the window."""
    wanted = r"[A-Z]{6}|commit|[✓✗?] [\w:]+: |. accuracy|  eval_loss|  loss \D|plan|  +step \d|  +useful"
    shown = [escape(line if len(line) <= 70 else line[:69] + "…") for line in text.splitlines()]
    html = "\n".join(["<b>$ gangline show</b>", *(line for line in shown if re.match(wanted, line))])
    return re.sub("^(✓|PASSED)", r'<span class="yes">\1</span>', html, flags=re.M)


def junit_html(text: str) -> str:
    """Properties and gates, as an editor would show them."""
    root = ET.fromstring(text)  # noqa: S314  # our own service sent it
    lines = ['<testsuite name="gangline.stages">']
    told = {each.attrib["name"]: each.attrib["value"] for each in root.iter("property")}
    lines += [f'  <property name="{name}" value="{value}"/>' for name, value in told.items() if name not in LONG]
    lines += ["  …", '<testsuite name="gangline.gates">']
    for case in root.iterfind(f"testsuite[@name='gangline.gates']/testcase[@name='quality:{METRIC}']"):
        lines += [f'  <testcase name="{case.attrib["name"]}">', *said_in(case)]
    html = escape("\n".join(lines), quote=False)
    return re.sub(r"(&lt;[\w-]+|/?&gt;)", r'<span class="tag">\1</span>', html)


def said_in(case: ET.Element) -> list[str]:
    """Of a gate, folded to the panel."""
    return textwrap.wrap("".join(case.itertext()), 46, initial_indent="    ", subsequent_indent="    ")


def answer(samples: list[dict[str, Any]]) -> str:
    """Labels that tell something, and the value as Prometheus gave it."""
    (sample,) = samples
    told = {key: value for key, value in sample["metric"].items() if key in ("metric", "verdict", "gate")}
    labels = ", ".join(f'{key}="{value}"' for key, value in told.items())
    return f"<span>{{{escape(labels)}}}</span><b>{escape(sample['value'][1])}</b>"


def photograph(url: str, *, width: int, height: int | None = None, token: str = "", value: str = "") -> bytes:
    """PNG of a page, whole or its upper part; `value` is marked where a tile shows it."""
    from few_colours import in_few_colours
    from tests.report.browser import Browser

    browser = Browser()
    try:
        if token:
            browser.call("Network.setExtraHTTPHeaders", headers={"Authorization": f"Bearer {token}"})
        browser.visit(url, width=width)
        browser.value(MARK % json.dumps(value))
        tall = height or int(browser.value("Math.ceil(document.body.getBoundingClientRect().height)"))
        clip = {"x": 0, "y": 0, "width": width, "height": tall, "scale": 1}
        shot = browser.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        return in_few_colours(browser, base64.b64decode(shot["data"]))
    finally:
        browser.close()


if __name__ == "__main__":
    main()
