"""Signed checkpoints: written manifest last, verified before a tensor is read, opened under any plan.

Ranks (torch; every call is collective over the ranks of `group`, in the same order on all, unless it says local):

    saver = Saver(store=store, prefix=f"{plan.run_prefix}/checkpoints", run=plan.run, plan_digest=plan.digest,
                  generation=generation, key=key, group=checkpoint_group, keep=3, max_unsaved_seconds=3600.0)
    report = saver.save(model, optimizer, numbers, step=200, wait=False)   # None: skipped, one is in flight
    report = saver.save(model, optimizer, numbers, step=200, wait=True, rank_numbers={"rng": ...})
    for report in saver.poll(): ...     # SaveReports finished since last asked; local
    reports = saver.wait()              # poll once nothing is in flight; local
    saver.close()                       # waits, ends the thread

    loaded = load(store, prefix, model, optimizer, key=key, group=checkpoint_group, on_refused=refused)
    loaded.step, loaded.generation, loaded.prefix, loaded.numbers, loaded.rank_numbers

`save` without `wait` returns when the tensors are copied to host buffers; the report it returns, and the one that
`poll` gives when the bytes are durable, has `step, key, size_bytes, seconds, blocking_seconds, done, error, note`: with
`error` set the save failed, training goes on, and the next save tries again. What `save(wait=True)` returned is not
given by `poll` again. `save` raises `StorageError` on all ranks once saves have failed for `max_unsaved_seconds`; with
`wait` it tries again for `patience_seconds`, then raises. A step is saved once in a generation: asked again, the report
of the first time comes back. `numbers` is plain JSON data, equal on all ranks (rank 0's is kept); `rank_numbers` may
differ by rank and comes back as `loaded.rank_numbers` where the world size is the same, else None. `extra` and
`rank_extra` of `save` are more tensors by name, for strategies that keep some: `load(..., extra=...)` fills those it is
given, `loaded.rank_extra` holds this rank's own (none at another world size), `loaded.notes` tells what a changed plan
left out. `group` is a gloo group made for checkpoints alone; None means one process. `load` returns None where there is
no checkpoint at all, and raises `IntegrityError` where all were refused; `on_refused(file, reason)` is told of each
refusal, on every rank. The model is the bare module (`ddp.module`; FSDP2 in place) or a rank's part of it, as stages of
a pipeline are: together the ranks hold all names. `optimizer=None` saves or opens the model alone.

    prove.tensor_digests(model, optimizer=None, group=None) -> dict[name, sha256]   # full tensors; collective

Anyone (no torch):

    envelope.list_checkpoints(store, prefix) -> list[Found]             # newest first: step, prefix, manifest_key
    envelope.read_manifest(store, checkpoint_prefix, key) -> Manifest   # signature first, then parsed; or Refused
    envelope.verify_manifest(raw, key) -> Manifest
    latest.read_latest(store, prefix) -> Latest | None
    stored.stored_digests(store, checkpoint_prefix, key) -> dict[name, sha256]
    stored.compare(opened, stored, checkpoint=...) -> TensorDigests
    export.export_model(store, checkpoint_prefix, key, out_dir, metadata={...}) -> list[Path]
    retention.retain(store, prefix, key, keep=3), retention.collect(store, prefix, key, now=...)

A `checkpoint_prefix` is the whole folder, `<run_prefix>/checkpoints/step-00000200`; a `prefix` the one above it.

    step-00000200/g0003-r00000-0.safetensors   part of rank 0, at most 2 GiB, small ones first; keys `<name>@<offsets>`
                  g0003-index.json             name (`model/<fqn>`, `optim/<fqn>/<state>`) -> dtype, shape, chunks
                  g0003-state.json             step, optimizer numbers, the caller's numbers
                  manifest.json                last: the checkpoint exists when this does
    latest.json                                hint for readers, fence for writers, by compare-and-set
"""
