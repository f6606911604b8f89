"""What a person reads off each surface, by readers that share nothing with what wrote it.

Every reader turns its surface into `Seen`: words and rounded numbers as people say them. Surfaces that hold full
numbers (a pipeline's metrics, Prometheus) are rounded here, by decimal arithmetic of this module.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Context, Decimal
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree as ET

MARKS = {"✓": "yes", "✗": "no", "?": "unknown"}
Ask = Callable[[str], Sequence[Mapping[str, Any]]]
"""A PromQL expression to samples: {"metric": labels, "value": [time, text]}."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One run on one surface."""

    value: str
    center: str
    half: str
    """Of the band, as a share of its centre: `2.9 %`."""
    verdict: str
    plan: str
    step: str
    useful: str
    gates: frozenset[tuple[str, str]]
    """(kind, answer)."""


def disagreements(seen: Mapping[str, Seen]) -> list[str]:
    """Which surfaces say something else than most do, a line each."""
    found = []
    for name in (each.name for each in fields(Seen)):
        said = {surface: getattr(each, name) for surface, each in seen.items()}
        usual = max(said.values(), key=list(said.values()).count)
        found += [f"{surface}: {name} {each}, not {usual}" for surface, each in said.items() if each != usual]
    return found


def read_terminal(text: str, metric: str) -> Seen:
    value, center, half = _found(rf"^[✓✗ ] {metric} (\S+).* against (\S+) ± (\S+ %)$", text)
    return Seen(
        value=value, center=center, half=half,
        verdict=_found(r"^([A-Z]+)(?:,.* ·)? +\S+-[0-9a-f]{8}-", text)[0].lower(),
        plan=_found(r"^plan +(\S+), ", text)[0],
        step=_found(r"^ +step (\S+ m?s),", text)[0],
        useful=_found(r"^ +useful share (\S+ %)$", text)[0],
        gates=_gates(re.findall(r"^([✓✗?]) ([\w:]+): ", text, re.M)),
    )  # fmt: skip


def read_comment(text: str, metric: str) -> Seen:
    """Markdown: of the comment under a pull request, and of a pipeline's verdict."""
    text = text.replace("\\", "")
    (gates,) = (line for line in text.splitlines() if re.match("[✓✗?] ", line))
    cells = _found(rf"^\| {metric}\S* \| (\S+).* \| (\S+).* \| .* \| ±(\S+ %) \|", text)
    return Seen(
        value=cells[1], center=cells[0], half=cells[2],
        verdict=_found(r"^\*\*\S (\w+)(?:, [^*]*)?\*\*", text)[0],
        plan=_found(r"^\*\*plan\*\* (\S+):", text)[0],
        step=_found(r" · step (\d+ m?s)", text)[0],
        useful=_found(r"^\*\*useful share\*\* (\S+ %)", text)[0],
        gates=_gates(re.findall(r"(?:^| · )([✓✗?]) ([\w:]+)", gates)),
    )  # fmt: skip


def read_junit(text: str, metric: str) -> Seen:
    root = ET.fromstring(text)
    reported = {each.attrib["name"]: each.attrib["value"] for each in root.iter("property")}
    (gates,) = (suite for suite in root.iter("testsuite") if suite.attrib["name"].endswith(".gates"))
    center, half = reported["band"].split(" ± ")
    return Seen(
        value=reported[f"metric:{metric}"].split()[0], center=center, half=half, verdict=_word(reported["verdict"]),
        plan=reported["plan"],
        step=reported["step"], useful=reported["useful share"],
        gates=_gates((_outcome(case), case.attrib["name"]) for case in gates.iter("testcase")),
    )  # fmt: skip


def read_html(text: str, metric: str) -> Seen:
    """The service's page of a run, and the report."""
    page = _Page()
    page.feed(text)
    tiles = {tile[0]: tile[1:] for tile in page.tiles}
    center, half = _found(r"^base (\S+) ± (\S+ %)$", tiles[metric][1])
    return Seen(
        value=tiles[metric][0].split()[0], center=center, half=half, verdict=_word(page.verdict[-1]),
        plan=tiles["plan"][0], step=tiles["step"][0], useful=tiles["useful share"][0],
        gates=_gates((row[0], row[1]) for row in page.gates),
    )  # fmt: skip


def _word(verdict: str) -> str:
    """`passed` of `passed, 1 gate could not judge`: which gates those are, the gates say."""
    return verdict.partition(",")[0]


def read_pipeline(metrics: Mapping[str, float], verdict: str, metric: str) -> Seen:
    """Numbers are what kfp logged, words stand in the Markdown beside them."""
    words, center = read_comment(verdict, metric), metrics[f"{metric}_band_center"]
    return Seen(
        value=_four_digits(metrics[metric]), center=_four_digits(center),
        half=_percent(metrics[f"{metric}_band_half"] / center), step=_step(metrics["step_seconds"]),
        useful=_percent(metrics["useful_share"]), verdict=words.verdict, plan=words.plan, gates=words.gates,
    )  # fmt: skip


def read_prometheus(ask: Ask, run: str, metric: str) -> Seen:
    mine, of_metric = f'run="{run}"', f'run="{run}", metric="{metric}"'
    band = f"gangline_band_half{{{of_metric}}} / gangline_band_center{{{of_metric}}}"
    useful = f'gangline_ledger_seconds_total{{{mine}, cause="compute"}}'
    useful = f"sum({useful}) / sum(gangline_ledger_seconds_total{{{mine}}})"
    answers = {"1": "yes", "0": "unknown", "-1": "no"}
    return Seen(
        value=_four_digits(_number(ask, f"gangline_eval_value{{{of_metric}}}")),
        center=_four_digits(_number(ask, f"gangline_band_center{{{of_metric}}}")),
        half=_percent(_number(ask, band)),
        verdict=_label(ask, f"gangline_run_verdict{{{mine}}} == 1", "verdict"),
        plan=_label(ask, f"gangline_run_info{{{mine}}}", "plan"),
        step=_step(_number(ask, f'gangline_eval_value{{{mine}, metric="step_seconds"}}')),
        useful=_percent(_number(ask, useful)),
        gates=frozenset(
            (each["metric"]["gate"], answers[each["value"][1]]) for each in ask(f"gangline_run_gate{{{mine}}}")
        ),
    )  # fmt: skip


class _Page(HTMLParser):
    """Texts of tiles, rows of gates, the verdict; by the classes that the style sheet knows, too."""

    def __init__(self) -> None:
        super().__init__()
        self.tiles: list[list[str]] = []
        self.gates: list[list[str]] = []
        self.verdict: list[str] = []
        self._open: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in {"meta", "link", "br", "input", "hr", "img"}:
            self._open.append((tag, dict(attrs).get("class") or ""))
        if tag == "li" and ("ul", "tiles") in self._open:
            self.tiles.append([])
        if tag == "tr" and ("table", "gates") in self._open:
            self.gates.append([])

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        said = data.strip()
        inside = {tag for tag, _ in self._open}
        if not said or "svg" in inside:
            return
        if ("ul", "tiles") in self._open:
            self.tiles[-1].append(said)
        elif ("table", "gates") in self._open:
            self.gates[-1].append(said)
        elif ("p", "verdict") in self._open and "strong" in inside:
            self.verdict.append(said)


def _found(pattern: str, text: str) -> tuple[str, ...]:
    matches = re.findall(pattern, text, re.M)
    assert len(matches) == 1, f"{pattern} matches {matches} of:\n{text[:6000]}"
    return (matches[0],) if isinstance(matches[0], str) else matches[0]


def _gates(rows: Any) -> frozenset[tuple[str, str]]:
    """(mark or answer, name) each."""
    return frozenset((name.partition(":")[0], MARKS.get(mark, mark)) for mark, name in rows)


def _outcome(case: ET.Element) -> str:
    if case.find("failure") is not None:
        return "no"
    return "yes" if case.find("skipped") is None else "unknown"


def _number(ask: Ask, expression: str) -> float:
    (sample,) = ask(expression)
    return float(sample["value"][1])


def _label(ask: Ask, expression: str, name: str) -> str:
    (sample,) = ask(expression)
    return str(sample["metric"][name])


def _four_digits(value: float) -> str:
    return f"{Context(prec=4).create_decimal_from_float(value).normalize():f}"


def _percent(share: float) -> str:
    value = Decimal(share) * 100
    return f"{value.quantize(Decimal(1) if value >= Decimal('9.95') else Decimal('0.1'))} %"


def _step(seconds: float) -> str:
    value = Decimal(seconds)
    return f"{(value * 1000).quantize(Decimal(1))} ms" if value < 1 else f"{value.quantize(Decimal('0.1'))} s"
