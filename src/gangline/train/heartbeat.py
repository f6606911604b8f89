"""Heartbeat of a program: `heartbeat.beat(step)` tells the watchdog of the keeper that this process progresses."""

from gangline.keeper.ipc.heartbeat import NO_STEP, Beat, HeartbeatReader, HeartbeatWriter, beat, expect, peek

__all__ = ["NO_STEP", "Beat", "HeartbeatReader", "HeartbeatWriter", "beat", "expect", "peek"]
