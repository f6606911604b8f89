"""The first word of a pod."""

import re
import resource

from gangline.keeper.pod import preflight


def test_preflight_names_what_ranks_get_in_one_line():
    pattern = r"locked memory (unlimited|[\d.,]+ \w+) · /dev/shm [\d.,]+ \w+ · \d+ cores · \d+ GPUs"
    assert re.fullmatch(pattern, preflight()), preflight()


def test_unlimited_locked_memory_is_said_so(monkeypatch):
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr("gangline.keeper.pod.resource.getrlimit", lambda _: unlimited)
    assert preflight().startswith("locked memory unlimited · ")


def test_machine_without_shared_memory_is_not_a_failure(monkeypatch):
    monkeypatch.setattr("gangline.keeper.pod._SHM", "/nowhere")
    assert "/nowhere No such file or directory" in preflight()
