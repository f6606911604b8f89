"""Heartbeat of a program: `heartbeat.beat(step)` reports progress of this process to the keeper's watchdog."""

from gangline.keeper.ipc.heartbeat import NO_STEP, Beat, HeartbeatReader, HeartbeatWriter, beat, expect, peek

__all__ = ["NO_STEP", "Beat", "HeartbeatReader", "HeartbeatWriter", "beat", "expect", "peek"]
