"""Model registry: numbered versions made from runs that passed, signed, promoted by alias, verifiable by anyone.

`environ` is read by the callers and passed in, for secret references and the user's configuration folder:

    publish.publish(*, store, record, line, key, repo, workdir, checkpoint, runner)
        -> Published | NotPublished                         publish stage; `checkpoint` is the store prefix of a step
        raises IntegrityError (50: fork, name taken), GateError (60: a gate says no), TrainingError (30: smoke test),
        ConfigError (10: the extra is missing)
    promote.promote(model, version, alias, *, store, repo, site, environ, because, who) -> Alias
        raises IntegrityError (50: a part is missing or differs), GateError (60: another promotion was faster)
    version_checks.check_version(version, evidence) -> tuple[CheckResult, ...]    a failed check is an answer, no error
    versions.list_versions(store, model) -> tuple[Version, ...]
    versions.read_alias(store, model, alias) -> Alias | None

The types:

    Published(model, version, key, files, key_id, weights, smoke, tagged, events, artifacts, message)
        `artifacts` go into the record as they are, `events` are sentences (a tag that could not be pushed),
        `message` is the line that the user sees
    NotPublished(reason)    other branch, dirty tree, drilled run: no failure; the stage is `skipped` with this sentence
    CheckResult(name, ok, text)
"""
