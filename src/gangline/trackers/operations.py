"""What a tracker is sent for one run, from its record and its metrics: pure, and equal however often it is computed."""

from gangline.trackers.protocol import Point, TrackedRun

__all__ = ["Point", "TrackedRun"]
