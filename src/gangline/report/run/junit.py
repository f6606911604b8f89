"""JUnit form of a record: a case per stage and per gate, the run's numbers as properties, for build servers."""

from xml.etree.ElementTree import Element, SubElement, tostring

from gangline.report.facts import band_of, headline, mark_words, stages_in_order, unreported, verdict_text
from gangline.report.text import clean, percent, quantity, share_words
from gangline.sanitize import sanitized
from gangline.spec.record import Gate, Record, StageInfo
from gangline.units import format_number, format_step


def render_junit(record: Record) -> str:
    """Two suites, `stages` and `gates`; a stage that never ran and a gate without an answer are skipped cases."""
    record = sanitized(record)
    root = Element("testsuites", name=record.run.id)
    stages = _suite(root, "gangline.stages", record)
    _properties(stages, record)
    for name, info in stages_in_order(record):
        _stage_case(stages, name, info)
    gates = _suite(root, "gangline.gates", record)
    for gate in record.gates:
        _gate_case(gates, gate)
    for suite in (stages, gates):
        cases = suite.findall("testcase")
        suite.set("tests", str(len(cases)))
        suite.set("failures", str(sum(case.find("failure") is not None for case in cases)))
        suite.set("skipped", str(sum(case.find("skipped") is not None for case in cases)))
        suite.set("errors", "0")
        suite.set("time", f"{sum(float(case.attrib['time']) for case in cases):.3f}")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _suite(root: Element, name: str, record: Record) -> Element:
    return SubElement(root, "testsuite", name=name, timestamp=record.run.created[:19])


def _properties(suite: Element, record: Record) -> None:
    """What the other surfaces show at their head, in the same words."""
    values = {"run": record.run.id, "commit": record.commit.sha, "verdict": verdict_text(record)}
    if judged := headline(record):
        values[f"metric:{clean(judged.name, 60)}"] = quantity(judged.metric.value, judged.metric.unit)
        if (band := band_of(judged.metric)) and band.center:
            values["band"] = f"{format_number(band.center)} ± {percent(band.half / abs(band.center))}"
    if record.plan:
        values["plan"] = record.plan.name
        if record.plan.measured.step_seconds:
            values["step"] = format_step(record.plan.measured.step_seconds)
    if record.ledger:
        values["useful share"] = share_words(record.ledger.useful_share)
    if marked := mark_words(record):
        values["marks"] = clean(marked)
    if silent := unreported(record):
        values["unreported"] = clean("; ".join(silent))
    properties = SubElement(suite, "properties")
    for name, value in values.items():
        SubElement(properties, "property", name=name, value=value)


def _stage_case(suite: Element, name: str, info: StageInfo) -> None:
    case = SubElement(suite, "testcase", classname=suite.attrib["name"], name=name, time=f"{info.seconds or 0:.3f}")
    message = clean(info.message)
    if info.state == "failed":
        SubElement(case, "failure", message=message, type=f"exit {info.exit}").text = message
    elif info.state in ("skipped", "waiting", "cancelled"):
        SubElement(case, "skipped", message=message or info.state)
    elif message:
        SubElement(case, "system-out").text = message


def _gate_case(suite: Element, gate: Gate) -> None:
    case = SubElement(suite, "testcase", classname=suite.attrib["name"], name=clean(gate.name), time="0.000")
    reason = clean(gate.reason)
    if gate.verdict == "no":
        SubElement(case, "failure", message=reason, type="gate").text = reason
    elif gate.verdict == "unknown":
        SubElement(case, "skipped", message=reason)
    else:
        SubElement(case, "system-out").text = reason
