"""Signed checkpoints: written manifest last, verified before a tensor is read, opened under any plan.

Ranks (torch; every call is collective over the ranks of `group`, in the same order on all, unless it says local):

    saver = Saver(store=store, prefix=f"{plan.run_prefix}/checkpoints", run=plan.run, plan_digest=plan.digest,
                  generation=generation, key=key, group=checkpoint_group, keep=3, max_unsaved_seconds=3600.0)
    report = saver.save(model, optimizer, numbers, step=200, wait=False)   # None: skipped, one is in flight
    report = saver.save(model, optimizer, numbers, step=200, wait=True, rank_numbers={"rng": ...})
    for report in saver.poll():  ...     # SaveReports of saves that finished since the last call; local
    reports = saver.wait()              # as poll, after the save in flight has ended; local
    saver.close()                       # waits for the save in flight

    loaded = load(store, prefix, model, optimizer, key=key, group=checkpoint_group, on_refused=refused)
    loaded.step, loaded.prefix, loaded.numbers, loaded.rank_numbers

`save` without `wait` returns when the tensors are copied to host buffers; the report that it returns, and the one that
`poll` returns when the bytes are durable, have `step, key, size_bytes, seconds, blocking_seconds, error, note`.
With `error` set the save failed, training continues, and the next save tries again. `poll` does not return the reports
of `save(wait=True)`. `save` raises `StorageError` on all ranks once saves have failed for `max_unsaved_seconds`; with
`wait` it tries again for `retry_seconds`, then raises. A step is saved once in a generation; a second call returns the
report of the first. `numbers` is plain JSON data, equal on all ranks (rank 0's is stored); `rank_numbers` may differ by
rank and is returned as `loaded.rank_numbers` if the world size is the same, else None. `extra` and `rank_extra` of
`save` are more tensors by name, for strategies that have some: `load(..., extra=...)` fills those that it gets,
`loaded.rank_extra` holds those of this rank (none at another world size), `loaded.notes` says what was not loaded
because the plan changed. `group` is a gloo group that only checkpoints use; None means one process. `load(...,
fused=rules)` opens the checkpoint of a model whose layers are fused where those of this one are split, or the other way
round; `loaded.converted` says which. It returns None if there is no checkpoint, and raises `IntegrityError` if all were
refused; `on_refused(file, reason)` is called for each refusal, on every rank. The model is the bare module
(`ddp.module`; FSDP2 in place) or a rank's part of it, as the stages of a pipeline: together the ranks hold all names.
`optimizer=None` saves or opens the model alone.

    state.tensor_digests(model, optimizer=None, group=None) -> dict[name, sha256]   # full tensors; collective

Anyone, in `format` (no torch):

    manifest.list_checkpoints(store, prefix) -> list[ListedCheckpoint]     # newest first: step, prefix, manifest_key
    manifest.read_manifest(store, checkpoint_prefix, key) -> Manifest   # verified, then parsed; or RefusedCheckpoint
    manifest.verify_manifest(raw, key) -> Manifest
    commit.read_latest(store, prefix) -> Latest | None
    stored_tensors.stored_digests(store, checkpoint_prefix, key) -> dict[name, sha256]
    stored_tensors.compare(opened, stored, checkpoint=...) -> TensorDigests
    export.export_model(store, checkpoint_prefix, key, out_dir, metadata={...}) -> list[Path]
    retention.retain(store, prefix, key, keep=3), retention.collect(store, prefix, key, now=...)

A `checkpoint_prefix` is the whole folder, `<run_prefix>/checkpoints/step-00000200`; a `prefix` the one above it.

    step-00000200/g0003-r00000-0.safetensors   part of rank 0, at most 2 GiB, small ones first; keys `<name>@<offsets>`
                  g0003-index.json             name (`model/<fqn>`, `optim/<fqn>/<state>`) -> dtype, shape, chunks
                  g0003-state.json             step, optimizer numbers, the caller's numbers
                  manifest.json                last: the checkpoint exists when this does
    latest.json                                hint for readers, fence for writers, by compare-and-set
"""
