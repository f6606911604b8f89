"""T8: a rank that the kernel kills for memory is classed so and not tried again blindly."""

import os
from pathlib import Path

import pytest
from tests.contracts.launcher.gangs import HEAD, poll

pytestmark = pytest.mark.row("T8", full="50 kills for memory")
LIMIT_BYTES = 96 << 20


@pytest.fixture
def memory_group():
    """Function that moves a process into a memory group of its own, of cgroup v1 or v2."""
    group = _group()
    if group is None:
        pytest.skip("no memory cgroup that this user may make")
    yield lambda pid: (group / "cgroup.procs").write_text(str(pid))
    poll(lambda: not (group / "cgroup.procs").read_text().split())
    group.rmdir()


def _group() -> Path | None:
    for root, limit in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        group = root / f"gangline-test-{os.getpid()}"
        try:
            group.mkdir()
            (group / limit).write_text(str(LIMIT_BYTES))
        except OSError:
            if group.exists():
                group.rmdir()
            continue
        return group
    return None


@pytest.mark.parametrize("number", [0, *(pytest.param(number, marks=pytest.mark.slow) for number in range(1, 50))])
def test_oom_kill_is_classed_and_not_repeated(stand, end_of, memory_group, number):
    """50 at full size."""
    del number
    program = HEAD + "time.sleep(60) if rank == 0 else None\nwhile not os.path.exists('go'): time.sleep(0.02)\n"
    stand.launcher.submit(stand.podset(program + "eaten = b'x' * (1 << 30); time.sleep(60)"))
    poll(lambda: stand.launcher.status("run-1").state == "running")
    for pid in stand.processes():
        memory_group(pid)
    (stand.root / "run-1" / "code" / "go").touch()
    end, _ = end_of()
    assert (end.exit_code, end.retry, end.restarts) == (32, "changed", 0), end
    assert "killed: out of memory" in end.reason
