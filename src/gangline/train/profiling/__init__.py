"""Profiling of a running training: windows of steps under torch's profiler, by request, and their summary."""
