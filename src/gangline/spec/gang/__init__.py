"""Files and messages of a gang: PodSet, status, pod output, profiling. Plain data."""
