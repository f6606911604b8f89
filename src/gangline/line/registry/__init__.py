"""Models by name and version: made from a run that passed, signed, promoted by alias, verified by anybody.

What callers use; `environ` is read by them and handed in, for secret references and the user's configuration folder:

    keys.signing_key(site, environ) -> SigningKey           made at first use; `.key_id`, `.checkpoint_key(project)`
    keys.list_keys(site, environ) -> tuple[KeyInfo, ...]    key_id, place, own (signs here), trusted (promotable)
    publish.publish(*, store, record, line, key, repo, workdir, checkpoint, runner)
        -> Published | Skipped                              publish stage; `checkpoint` is the store prefix of a step
        raises IntegrityError (50: fork, name taken), GateError (60: a gate says no), TrainingError (30: smoke),
        ConfigError (10: the extra is missing)
    promote.promote(model, version, alias, *, store, repo, site, environ, because, who) -> Alias
        raises IntegrityError (50: a part is missing or differs), GateError (60: another promotion was faster)
    verify.verify(target, *, store, repo, site, environ) -> tuple[Check, ...]
        `target`: a run id's record prefix or id, a checkpoint prefix, `MODEL/VERSION`, `MODEL@ALIAS`, or a local folder
        raises UsageError where there is no such thing; a failed check is an answer, not an error
    versions.list_versions(store, model) -> tuple[Version, ...]
    versions.read_alias(store, model, alias) -> Alias | None

The types:

    Published(model, version, key, files, key_id, weights, smoke, tagged, events, artifacts, message)
        `artifacts` go into the record as they are, `events` are sentences (a tag that could not be pushed),
        `message` is the line that the user sees
    Skipped(reason)     other branch, dirty tree, drilled run: no failure; the stage is `skipped` with this sentence
    Check(name, ok, text)
"""
