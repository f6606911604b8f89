"""Windows under torch's profiler while a training goes on: asked from outside, taken by chosen ranks, told briefly."""
