"""Rates of this machine: measured once by real processes, kept, and never in the way of a plan."""

from dataclasses import replace
from typing import get_args

import pytest
from tests.planner.cases import RATES, SITE, TRACED, cpu, gpus, line

from gangline.line.stages import device_rates
from gangline.line.stages.measured_history import MeasuredHistory
from gangline.line.stages.model_inspection import ModelInspection
from gangline.line.stages.planning import make_choice
from gangline.spec.devices import Exchange, Rates
from gangline.storage import site_paths


def ask(tmp_path, *, inventory=None, profile=TRACED, said=None, **train):
    notify = [].append if said is None else said.append
    return device_rates.device_rates(
        line(**train), SITE, inventory or cpu(2), profile, cache=tmp_path, visible_devices=None, notify=notify
    )


def test_they_are_measured_once_and_kept(tmp_path, monkeypatch):
    said = []
    found = ask(tmp_path, said=said).rates
    assert said == ["measuring the rates of this machine"]
    assert (found.device, found.precision, found.ranks, found.backend) == ("cpu", "fp32", 2, "gloo")
    assert found.device_name
    (product,) = found.products
    assert (product.rows, product.inner, product.columns) == (256, 128, 512)
    assert 1e8 < product.flops_per_second < 1e13
    assert found.memory_bytes_per_second > 1e8
    assert {each.kind for each in found.messages} == set(get_args(Exchange))
    assert all(each.seconds > 0 for each in (*found.messages, *found.moves))
    largest, least = found.moves[-1], found.moves[0]
    assert largest.seconds > least.seconds
    assert Rates.from_json(found.to_json()) == found
    monkeypatch.setattr(device_rates, "_measure", lambda _: pytest.fail("measured twice"))
    assert ask(tmp_path).rates == found


def test_another_processor_or_precision_is_asked_again(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(device_rates, "_measure", lambda question: asked.append(question) or RATES.to_json())
    ask(tmp_path)
    monkeypatch.setattr(device_rates, "processor_name", lambda: "another")
    ask(tmp_path)
    ask(tmp_path, precision="bf16", profile=TRACED)
    assert len(asked) == 2  # nothing was followed in bf16, so there is nothing to ask
    assert asked[0]["matrices"] == [[256, 128, 512]]


def test_they_are_kept_for_the_user_where_one_is_known(tmp_path, monkeypatch):
    monkeypatch.delenv("GANGLINE_CACHE")
    assert site_paths.cache_folder({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, tmp_path).as_posix() == "/x/gangline"
    assert site_paths.cache_folder({"HOME": "/h"}, tmp_path).as_posix() == "/h/.cache/gangline"
    assert site_paths.cache_folder({}, tmp_path) == tmp_path / "cache"
    monkeypatch.setenv("GANGLINE_CACHE", "/own")
    assert site_paths.cache_folder({"HOME": "/h"}, tmp_path).as_posix() == "/own"


def test_what_is_kept_and_cannot_be_read_is_measured_again(tmp_path, monkeypatch):
    monkeypatch.setattr(device_rates, "_measure", lambda _: RATES.to_json())
    assert ask(tmp_path).rates == RATES
    (kept,) = tmp_path.iterdir()
    kept.write_text('{"schema": 1, "from": "another version"}')
    assert ask(tmp_path).rates == RATES
    assert Rates.from_json(kept.read_bytes()) == RATES


def test_devices_that_are_elsewhere_are_not_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(device_rates, "_measure", lambda _: pytest.fail("measured"))
    assert ask(tmp_path, inventory=gpus(8)) == device_rates.KnownRates()
    assert ask(tmp_path, inventory=replace(cpu(2), origin="cluster")) == device_rates.KnownRates()
    assert ask(tmp_path, profile=None) == device_rates.KnownRates()


@pytest.mark.parametrize("harm", ["dies", "says nothing of use", "cannot be kept"])
def test_what_could_not_be_measured_is_said_and_the_plan_is_made(tmp_path, monkeypatch, harm):
    cache = tmp_path / "cache"
    if harm == "dies":
        monkeypatch.setattr(device_rates.sys, "executable", "/bin/false")
    elif harm == "cannot be kept":
        cache.write_text("a file where a folder was wanted")
        monkeypatch.setattr(device_rates, "_measure", lambda _: RATES.to_json())
    else:
        monkeypatch.setattr(device_rates, "_measure", lambda _: b"no json")
    made = make_choice(
        line(), SITE, cpu(2), ModelInspection(cpu(2), TRACED),
        MeasuredHistory(problem="earlier runs were not read: away"),
        cache=cache, visible_devices=None, notify=lambda _: None,
    )  # fmt: skip
    assert made.choice.name == "ddp-2"
    assert made.choice.forecast.step_seconds is None
    assert made.problems[0].startswith("rates of this machine were not measured: ")
    assert made.problems[1] == "earlier runs were not read: away"
