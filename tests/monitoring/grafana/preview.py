"""Draws the boards about as a Grafana does, on the recorded runs: `python -m tests.monitoring.grafana.preview FOLDER`.

For review and for the pictures of the guide, where no Grafana is at hand. Its layout, titles, units, thresholds and
legends are the boards'; fonts and curves are not Grafana's.
"""

import re
import sys
import tempfile
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from tests.monitoring.grafana.expressions import boards, filled
from tests.monitoring.grafana.recording import Recording, load

COLOURS = {
    "green": "#73bf69", "yellow": "#fade2a", "orange": "#ff9830", "red": "#f2495c", "blue": "#5794f2",
    "text": "#8e8e9c", "light-blue": "#8ab8ff", "semi-dark-green": "#56a64b", "transparent": "none",
}  # fmt: skip
PALETTE = ("#7eb26d", "#eab839", "#6ed0e0", "#ef843c", "#e24d42", "#1f78c1", "#ba43a9", "#705da0", "#508642", "#cca300")
CELL, LINE = 60, 38
STYLE = """body{margin:0;background:#111217;color:#ccccdc;font:12px Inter,system-ui,sans-serif}
.p{position:absolute;background:#181b1f;border:1px solid #2c2f36;border-radius:3px;overflow:hidden;
box-sizing:border-box}.t{padding:5px 8px;font-weight:600;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.row{position:absolute;font-size:14px;font-weight:600}
.v{font-size:26px;font-weight:600;text-align:center;padding:8px 4px}
.n{font-size:13px;color:#8e8e9c}.l{position:absolute;bottom:3px;left:8px;right:4px;height:16px;overflow:hidden}
.b{display:flex;align-items:center;margin:3px 8px}.b i{display:block;height:14px;border-radius:2px}
.b span{min-width:130px;text-align:right;padding-right:8px;overflow:hidden;white-space:nowrap;flex:none}
td,th{text-align:left;padding:2px 10px;border-bottom:1px solid #2c2f36;white-space:nowrap}
h1{font-size:17px;margin:10px 12px}"""
Series = tuple[str, list[tuple[float, float]]]


def page(name: str, recording: Recording) -> str:
    """One board as an HTML document."""
    board = boards()[name]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"]) * LINE + 60
    chosen = " · ".join(f"{key} {value}" for key, value in recording.values.items() if not key.startswith("_"))
    parts = "".join(_panel(panel, recording) for panel in board["panels"])
    head = f"<h1>{escape(board['title'])} <span class=n>{escape(chosen)}</span></h1>"
    return (
        f"<!doctype html><meta charset=utf-8><title>{name}</title><style>{STYLE}</style><body style='width:1460px;"
        f"height:{height}px'>{head}<div style='position:relative;margin-left:10px'>{parts}</div>"
    )


def _panel(panel: dict[str, Any], recording: Recording) -> str:
    at = panel["gridPos"]
    width, height = at["w"] * CELL - 6, at["h"] * LINE - 6
    place = f"left:{at['x'] * CELL}px;top:{at['y'] * LINE}px;width:{width}px;height:{height}px"
    if panel["type"] == "row":
        return f"<div class=row style='{place};padding-top:10px'>▾ {escape(panel['title'])}</div>"
    draw = {
        "stat": _stat, "timeseries": _curves, "bargauge": _bars, "status-history": _cells, "state-timeline": _cells,
        "table": _table,
    }[panel["type"]]  # fmt: skip
    inside = draw(panel, recording, width, height - 30)
    return f"<div class=p style='{place}'><div class=t>{escape(panel['title'])}</div>{inside}</div>"


def _stat(panel: dict[str, Any], recording: Recording, width: int, _height: int) -> str:
    found = [(name, points[-1][1]) for name, points in _instant(panel, recording)]
    if not found:
        return f"<div class=v>{escape(panel['fieldConfig']['defaults'].get('noValue', '–'))}</div>"
    by_name = panel["options"]["textMode"] == "name"
    named = not by_name and panel["options"]["textMode"] == "value_and_name"
    size = min(26, round(1.5 * width / max(len(_text(panel, value)) for _, value in found)) if not by_name else 26)
    return "".join(
        f"<div class=v style='color:{_colour(panel, name, value)};font-size:{size / len(found) ** 0.5:.0f}px'>"
        + (f"<span class=n>{escape(name)} </span>" if named else "")
        + f"{escape(name if by_name else _text(panel, value))}</div>"
        for name, value in found
    )


def _bars(panel: dict[str, Any], recording: Recording, width: int, _height: int) -> str:
    found = [(name, points[-1][1]) for name, points in _instant(panel, recording)]
    most = panel["fieldConfig"]["defaults"].get("max") or max((value for _, value in found), default=1) or 1
    rows = (
        f"<div class=b><span>{escape(name)}</span><i style='width:{max(1, min(value / most, 1) * (width - 230)):.0f}px;"
        f"background:{_colour(panel, name, value)}'></i>&nbsp;{_text(panel, value)}</div>" for name, value in found
    )  # fmt: skip
    return "".join(rows) or "<div class=v>–</div>"


def _curves(panel: dict[str, Any], recording: Recording, width: int, height: int) -> str:
    series, stacked = list(_range(panel, recording)), "stacking" in panel["fieldConfig"]["defaults"].get("custom", {})
    values = [value for _, points in series for _, value in points]
    if not values:
        return "<div class=v>No data</div>"
    if stacked:
        series = _stack(series)
        values = [value for _, points in series for _, value in points]
    low, high = panel["fieldConfig"]["defaults"].get("min", min(values)), max(values)
    span = (high - low) or 1
    box = (60, 6, width - 70, height - 44)

    def spot(at: float, value: float) -> str:
        x = box[0] + (at - recording.run_changed) / (recording.end - recording.run_changed) * box[2]
        return f"{x:.1f},{box[1] + (1 - (value - low) / span) * box[3]:.1f}"

    lines, legend = [], []
    for at in range(5):
        value, y = low + span * at / 4, box[1] + (1 - at / 4) * box[3]
        lines.append(f"<path d='M{box[0]} {y:.0f}h{box[2]}' stroke='#2c2f36'/><text x=54 y={y + 4:.0f} fill='#8e8e9c' "
                     f"font-size=10 text-anchor=end>{_text(panel, value)}</text>")  # fmt: skip
    for at, (name, points) in enumerate(series):
        colour = _fixed(panel, name) or PALETTE[at % len(PALETTE)]
        path = " ".join(spot(*point) for point in points)
        if stacked and points:
            low_y = box[1] + box[3]
            path = f"{spot(*points[0]).partition(',')[0]},{low_y} {path} {spot(*points[-1]).partition(',')[0]},{low_y}"
        lines.insert(0 if stacked else len(lines), f"<polyline points='{path}' fill='{colour if stacked else 'none'}' "
                     f"stroke='{colour}' stroke-width=1.5 />")  # fmt: skip
        legend.append(f"<span style='color:{colour}'>▬</span> {escape(name)}&nbsp; ")
    return f"<svg width={width} height={height - 20}>{''.join(lines)}</svg><div class=l>{''.join(legend)}</div>"


def _stack(series: list[Series]) -> list[Series]:
    total: dict[float, float] = {}
    found = []
    for name, points in series:
        for at, value in points:
            total[at] = total.get(at, 0.0) + value
        found.append((name, [(at, total[at]) for at, _ in points]))
    return found


def _cells(panel: dict[str, Any], recording: Recording, width: int, height: int) -> str:
    series = list(_range(panel, recording))
    tall = min(26, (height - 24) / max(1, len(series)))
    span, left, marks = recording.end - recording.run_changed, 80, []
    for row, (name, points) in enumerate(series):
        y = 4 + row * tall
        marks.append(
            f"<text x=74 y={y + tall / 2 + 4:.0f} fill='#ccccdc' font-size=11 text-anchor=end>{escape(name)}</text>"
        )
        for at, value in points:
            x, wide = left + (at - recording.run_changed) / span * (width - left - 10), 5 / span * (width - left - 10)
            marks.append(f"<rect x={x:.1f} y={y:.1f} width={wide + 0.3:.1f} height={tall - 2:.1f} "
                         f"fill='{_colour(panel, name, value)}'/>")  # fmt: skip
    return f"<svg width={width} height={height}>{''.join(marks)}</svg>"


def _table(panel: dict[str, Any], recording: Recording, _width: int, _height: int) -> str:
    organised = panel["transformations"][-1]["options"]
    columns = {
        key: organised["renameByName"][key]
        for key in sorted(organised["indexByName"], key=organised["indexByName"].get)
    }
    rows: dict[str, dict[str, str]] = {}
    for target in panel["targets"]:
        for row in recording.server.query(filled(target["expr"], recording.values), at=recording.end):
            mine = rows.setdefault(row["metric"].get("run", row["metric"].get("metric", "")), {})
            mine |= {**row["metric"], f"Value #{target['refId']}": f"{float(row['value'][1]):.5g}"}
    head = "".join(f"<th>{escape(name)}</th>" for name in columns.values())
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(row.get(key, '–')[:26])}</td>" for key in columns) + "</tr>"
        for row in rows.values()
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _instant(panel: dict[str, Any], recording: Recording) -> Iterator[Series]:
    for target in panel["targets"]:
        for row in recording.server.query(filled(target["expr"], recording.values), at=recording.end):
            yield _legend(target, row["metric"]), [(recording.end, float(row["value"][1]))]


def _range(panel: dict[str, Any], recording: Recording) -> Iterator[Series]:
    for target in panel["targets"]:
        text = filled(target["expr"], recording.values)
        for row in recording.server.range(text, start=recording.run_changed, end=recording.end, step=5):
            points = [(at, float(value)) for at, value in row["values"] if value != "NaN"]
            yield _legend(target, row["metric"]), points


def _legend(target: dict[str, Any], labels: dict[str, str]) -> str:
    text = target["legendFormat"].replace("__auto", "")
    for name, value in labels.items():
        text = text.replace("{{" + name + "}}", value)
    return str(text)


def _colour(panel: dict[str, Any], name: str, value: float) -> str:
    defaults = panel["fieldConfig"]["defaults"]
    for mapping in defaults.get("mappings", []):
        if f"{value:g}" in mapping["options"]:
            return COLOURS[mapping["options"][f"{value:g}"]["color"]]
    steps = [
        step["color"] for step in defaults["thresholds"]["steps"] if step["value"] is None or value >= step["value"]
    ]
    return _fixed(panel, name) or COLOURS[steps[-1]]


def _fixed(panel: dict[str, Any], name: str) -> str | None:
    for override in panel["fieldConfig"].get("overrides", []):
        pattern = str(override["matcher"]["options"]).strip("/")
        for each in override["properties"]:
            if each["id"] == "color" and re.fullmatch(pattern, name):
                return COLOURS[each["value"]["fixedColor"]]
    return None


def _text(panel: dict[str, Any], value: float) -> str:
    unit = panel["fieldConfig"]["defaults"].get("unit", "")
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "bytes":
        return f"{value / 2**20:.4g} MiB"
    for mapping in panel["fieldConfig"]["defaults"].get("mappings", []):
        if f"{value:g}" in mapping["options"]:
            return str(mapping["options"][f"{value:g}"]["text"])
    return f"{value:.4g}" + {"s": " s", "reqps": " req/s"}.get(unit, "")


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        recording = load(Path(scratch))
        for name in boards():
            (folder / f"{name}.html").write_text(page(name, recording), "utf-8")
        recording.server.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
