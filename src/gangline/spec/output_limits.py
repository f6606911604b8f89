"""Limits on what is read of a gang's output: fixed before any content is read, the same for driver and service.

Chosen for 256 ranks and a million steps. A line of metrics.jsonl has 150 to 300 bytes, a step in the events of a rank
300 to 700; both leave as much again for a program's own. Files that decide (metrics, result, manifest) are refused if
they are larger; files that inform (events, profiles, logs) are left out, and the record says so.
"""

MIB = 2**20
MOST_METRIC_BYTES = 1024 * MIB
"""metrics.jsonl of all attempts of a stage together."""
MOST_EVENT_BYTES = 1024 * MIB
"""ranks/<rank>.jsonl: of rank 0 over all attempts, of another rank in its last."""
MOST_STEPS = 2_000_000
"""Most steps with a loss of their own; each costs some 200 bytes of memory."""
MOST_NAMES = 64
"""Most numbers in a row of metrics.jsonl."""
MOST_RESULT_BYTES = 32 * MIB
"""4,096 losses of 100 seeds are 12 MiB, names of 100,000 tensors 20."""
MOST_JOBS = 1000
MOST_METRICS = 256
"""Named by one job of a result."""
MOST_EVALUATIONS = 64
"""Weights of one job that something was measured on."""
MOST_WEIGHTS_FILES = 256
"""Files of one of them."""
MOST_NAME = 200
"""Characters of such a name."""
MOST_OUTPUTS_BYTES = 32 * MIB
"""Largest list of what a program wrote: 100,000 paths of 200 characters."""
MOST_METRIC_LINES = 100_000
"""Most lines of a program's own metrics file."""
MOST_SUMMARY_BYTES = 4 * MIB
"""Largest profile of one rank; 100 steps of 100 operators are 1 MiB."""
MOST_TRACE_BYTES = 64 * MIB
"""A rank keeps no larger one."""
MOST_PROFILES = 4096
"""Files: 32 windows of 64 ranks."""
MOST_PICTURE_BYTES = 16 * MIB
MOST_LOG_BYTES = 8 * MIB
"""The end of each rank's log that a pod leaves."""
