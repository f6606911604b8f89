"""M3: series of a rank that is killed, or ends, are gone from every answer within a minute."""

import os
import signal
import subprocess
import sys
import time

import pytest
from tests.faults.m.test_m2_last_values import RANK
from tests.monitoring.prometheus import Prometheus, eventually

pytestmark = [pytest.mark.row("M3"), pytest.mark.tools]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_dead_rank_has_no_value_a_minute_later_and_is_shown_as_down(tmp_path, how):
    with subprocess.Popen([sys.executable, "-c", RANK], stdout=subprocess.PIPE) as rank:
        try:
            address = f"127.0.0.1:{int(rank.stdout.readline())}"
            with Prometheus(tmp_path, [address]) as server:
                server.wait('gangline_train_loss{run="r"} == 2.4')
                os.kill(rank.pid, how)
                died = time.monotonic()
                assert eventually(lambda: server.query('{run="r", __name__=~"gangline_.*"}') == [])
                assert time.monotonic() - died < 60
                assert server.value(f'up{{instance="{address}"}}') == 0
        finally:
            rank.kill()
