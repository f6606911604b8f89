"""Panels as the three boards use them: size, colours, legend and tooltip are decided here, once.

Every panel has a description that says what to do about what it shows. Nothing here knows a series.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    prometheus,
    stat,
    statetimeline,
    statushistory,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
GREEN, YELLOW, ORANGE, RED, BLUE, GREY = "green", "yellow", "orange", "red", "blue", "text"
PLAIN = ((None, BLUE),)
"""Thresholds of a number that is neither good nor bad."""

Steps = Sequence[tuple[float | None, str]]


@dataclass(frozen=True, slots=True)
class Ask:
    """One query: an expression, and the legend of what it answers."""

    expr: str
    legend: str = ""


def value(
    title: str, says: str, *asks: Ask, unit: str = "short", steps: Steps = PLAIN, width: int = 4, height: int = 3,
    decimals: int | None = None, mappings: Mapping[str, tuple[str, str]] | None = None, empty: str = "–",
    names: bool = False,
) -> stat.Panel:  # fmt: skip
    """The newest number of each answer; with `names` the legend alone, coloured by the value."""
    panel = _framed(stat.Panel(), title, says, width, height).unit(unit).thresholds(_thresholds(steps)).no_value(empty)
    panel.color_mode(looks.BigValueColorMode.BACKGROUND if names else looks.BigValueColorMode.VALUE)
    panel.graph_mode(looks.BigValueGraphMode.NONE).justify_mode(looks.BigValueJustifyMode.AUTO)
    panel.text_mode(looks.BigValueTextMode.NAME if names else _text_mode(asks))
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    if decimals is not None:
        panel.decimals(decimals)
    made: stat.Panel = _asking(_mapped(panel, mappings), asks, instant=True)
    return made


def curves(
    title: str, says: str, *asks: Ask, unit: str = "short", width: int = 12, height: int = 8, stacked: bool = False,
    least: float | None = None, most: float | None = None, steps: Steps | None = None, side: bool = False,
) -> timeseries.Panel:  # fmt: skip
    """Curves over time; gaps stay gaps, because a gap is a gang that did not answer."""
    panel = _framed(timeseries.Panel(), title, says, width, height).unit(unit)
    panel.line_width(1 if stacked else 2).fill_opacity(60 if stacked else 0)
    panel.show_points(looks.VisibilityMode.AUTO).span_nulls(False)
    panel.legend(_legend(right=side)).tooltip(_tooltip())
    panel.color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
    if stacked:
        panel.stacking(common.StackingConfig().mode(looks.StackingMode.NORMAL))
    if least is not None:
        panel.min(least)
    if most is not None:
        panel.max(most)
    if steps is not None:
        line = common.GraphThresholdsStyleConfig().mode(looks.GraphThresholdsStyleMode.DASHED)
        panel.thresholds(_thresholds(steps)).thresholds_style(line)
    made: timeseries.Panel = _asking(panel, asks)
    return made


def bars(
    title: str, says: str, *asks: Ask, unit: str = "short", steps: Steps = PLAIN, width: int = 8, height: int = 8,
    least: float | None = 0, most: float | None = None,
) -> bargauge.Panel:  # fmt: skip
    """A bar for each answer, longest first where the query sorts them."""
    panel = _framed(bargauge.Panel(), title, says, width, height).unit(unit).thresholds(_thresholds(steps))
    panel.orientation(looks.VizOrientation.HORIZONTAL).display_mode(looks.BarGaugeDisplayMode.BASIC)
    panel.value_mode(looks.BarGaugeValueMode.TEXT).show_unfilled(True)
    panel.name_placement(looks.BarGaugeNamePlacement.LEFT)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"])).no_value("none")
    if least is not None:
        panel.min(least)
    if most is not None:
        panel.max(most)
    made: bargauge.Panel = _asking(panel, asks, instant=True)
    return made


def strip(
    title: str, says: str, *asks: Ask, unit: str = "short", steps: Steps, width: int = 24, height: int = 8
) -> statushistory.Panel:
    """A row for each answer, a cell for each stretch of time, coloured by threshold: the heat map of ranks."""
    panel = _framed(statushistory.Panel(), title, says, width, height).unit(unit).thresholds(_thresholds(steps))
    panel.color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
    panel.show_value(looks.VisibilityMode.NEVER).row_height(0.9).col_width(1).per_page(64)
    panel.legend(_legend()).tooltip(_tooltip()).max_data_points(120).fill_opacity(80).line_width(0)
    made: statushistory.Panel = _asking(panel, asks)
    return made


def states(
    title: str, says: str, *asks: Ask, mappings: Mapping[str, tuple[str, str]], width: int = 24, height: int = 10
) -> statetimeline.Panel:
    """A row for each query, in their order; the value is a state by `mappings`."""
    panel = _framed(statetimeline.Panel(), title, says, width, height)
    panel.show_value(looks.VisibilityMode.AUTO).row_height(0.8).merge_values(True).fill_opacity(80).line_width(0)
    panel.legend(_legend()).tooltip(_tooltip())
    made: statetimeline.Panel = _asking(_mapped(panel, mappings), asks)
    return made


def rows(
    title: str, says: str, *asks: Ask, columns: Mapping[str, str], units: Mapping[str, str] | None = None,
    links: Mapping[str, tuple[str, str]] | None = None, newest: str = "", width: int = 12, height: int = 8,
) -> table.Panel:  # fmt: skip
    """A table: answers of all queries joined by their labels.

    Args:
        columns: Label, or `Value #A` of the first query, to its heading, in order; others are left out.
        units: Heading to unit.
        links: Heading to (title, address) that a cell leads to.
        newest: Heading of a time; the newest row stands first.
    """
    panel = _framed(table.Panel(), title, says, width, height).filterable(True).no_value("–")
    if newest:
        panel.sort_by([common.TableSortByFieldState().display_name(newest).desc(True)])
    order = {name: at for at, name in enumerate(columns)}
    for kind, options in (
        ("merge", {}),
        ("filterFieldsByName", {"include": {"names": list(columns)}}),
        ("organize", {"indexByName": order, "renameByName": dict(columns)}),
    ):
        panel.with_transformation(model.DataTransformerConfig(id_val=kind, options=options))
    for heading, unit in (units or {}).items():
        panel.override_by_name(heading, [model.DynamicConfigValue("unit", unit)])
    for heading, (text, address) in (links or {}).items():
        shown = [{"title": text, "url": address}]
        panel.override_by_name(heading, [model.DynamicConfigValue("links", shown)])
    made: table.Panel = _asking(panel, asks, instant=True, shape=PromQueryFormat.TABLE)
    return made


def coloured(panel: Any, names: Mapping[str, str]) -> Any:
    """The panel with a fixed colour for the series of these names; a name may be a regular expression."""
    for name, colour in names.items():
        fixed = model.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})
        panel.override_by_regexp(f"/^(?:{name})$/", [fixed])
    return panel


def banded(panel: timeseries.Panel, *, low: str, high: str) -> timeseries.Panel:
    """The panel with the area between two of its series filled: a band, not two curves."""
    faint = [
        model.DynamicConfigValue("custom.lineWidth", 1),
        model.DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [4, 4]}),
        model.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": GREEN}),
    ]
    panel.override_by_name(low, faint)
    between = [
        model.DynamicConfigValue("custom.fillBelowTo", low),
        model.DynamicConfigValue("custom.fillOpacity", 12),
    ]
    return panel.override_by_name(high, [*faint, *between])


def _framed(panel: Any, title: str, says: str, width: int, height: int) -> Any:
    return panel.title(title).description(says).datasource(SOURCE).span(width).height(height)


def _asking(panel: Any, asks: Sequence[Ask], *, instant: bool = False, shape: PromQueryFormat | None = None) -> Any:
    for at, ask in enumerate(asks):
        query = prometheus.Dataquery().datasource(SOURCE).expr(ask.expr).ref_id(chr(ord("A") + at))
        query.legend_format(ask.legend or "__auto").format(shape or PromQueryFormat.TIME_SERIES)
        panel.with_target(query.instant() if instant else query.range())
    return panel


def _text_mode(asks: Sequence[Ask]) -> looks.BigValueTextMode:
    named = len(asks) > 1 or any("{{" in ask.legend for ask in asks)
    return looks.BigValueTextMode.VALUE_AND_NAME if named else looks.BigValueTextMode.VALUE


def _mapped(panel: Any, mappings: Mapping[str, tuple[str, str]] | None) -> Any:
    if mappings:
        results = {
            value: model.ValueMappingResult(text=text, color=colour, index=at)
            for at, (value, (text, colour)) in enumerate(mappings.items())
        }
        panel.mappings([model.ValueMap(options=results)])
    return panel


def _thresholds(steps: Steps) -> dashboard.ThresholdsConfig:
    found = [model.Threshold(value=least, color=colour) for least, colour in steps]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(found)


def _legend(*, right: bool = False) -> common.VizLegendOptions:
    placement = looks.LegendPlacement.RIGHT if right else looks.LegendPlacement.BOTTOM
    return common.VizLegendOptions().show_legend(True).display_mode(looks.LegendDisplayMode.LIST).placement(placement)


def _tooltip() -> common.VizTooltipOptions:
    return common.VizTooltipOptions().mode(looks.TooltipDisplayMode.MULTI).sort(looks.SortOrder.DESCENDING)
