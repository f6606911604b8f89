"""Rows of the goal sheet that tests and mutations answer for, by family, and what the page of protections says of them.

A row has a smoke slice, a full size and a mutation of our code that the smoke slice notices. Where it lacks one of the
last two, or cannot be shown here at all, the reason stands below and on the page.
"""

FAMILIES = {
    "Trainer and node": ("T1", "T2", "T3", "T4", "T5", "T6", "T7", "T8", "T9", "T10", "T11"),
    "Storage": ("S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S10", "S11", "S12"),
    "Controller": ("C1", "C2", "C4", "C5", "C6", "C7", "C8"),
    "Kubernetes API": ("K1", "K2", "K3", "K4", "K6", "K7"),
    "Network": ("N1", "N2", "N3"),
    "Load": ("L1", "L2", "L3", "L4", "L5"),
    "Supply chain and code execution": ("P1", "P2", "P3", "P5", "P6", "P8", "P9", "P10", "P11"),
    "Tenancy": ("A1", "A2", "A3", "A4", "A5"),
    "Parameter server": ("PS1", "PS2", "PS3", "PS4", "PS5"),
    "Federated training": ("FL1", "FL2", "FL3", "FL4", "FL5", "FL6", "FL7"),
}
ROWS = tuple(row for rows in FAMILIES.values() for row in rows)

NOT_SHOWN = {
    "L4": "A soak of 24 hours: the longest test is the two hours of T5, and nothing measures memory over a day",
}
"""Rows without any test, and why."""

NOT_OURS = {"S7": "none of ours: the store heals its drives"}
"""Rows where what protects is no code of ours, and whose it is."""

SMALL_IS_ALL = {
    "T10": "the smoke slice has every code",
    "S11": "the smoke slice is all",
    "C5": "the smoke slice is all",
    "K4": "every kind of end in the smoke slice; on a cluster two evictions, not 100",
    "K7": "the smoke slice is all: outages of seconds stand for those of minutes",
    "P1": "3 kinds of pickle at each of 6 places and in each file of a checkpoint, not 500 files",
    "P2": "45 archives, and 300 with a changed byte",
    "P3": "every form of URL and address that is known here; no network namespace",
    "P5": "the smoke slice is all",
    "P6": "200 changed bodies of each recorded delivery, 150 drawn ones",
    "P9": "every escape of the corpus",
    "P10": "the smoke slice is all",
    "P11": "the smoke slice is all",
    "A1": "every route, role and tenant",
    "A2": "more than 500 requests off the prefix",
    "A4": "every pair of places and every port, in a model of network policies",
    "PS3": "every kind of object, drawn bytes of changes and of files; not 5,000 of each",
    "PS4": "every kind of compression, 3 drawn orders of arrivals each",
    "PS5": "drawn interleavings of up to 4 boundaries",
    "FL1": "243 patterns: each of 5 members stays, is lost before its key, or before its answer",
    "FL4": "every setting, right, class and request that joining closes; a real client refuses each in `long`",
    "FL5": "the smoke slice is all",
    "FL7": "10 members, 2 of whom send ten times the opposite of their change",
}
"""Rows whose smoke slice is as large as it gets, and what it comes to."""

WHAT = {
    "C1": "a driver, a submit or a placer is killed before or after any durable effect; the next one comes to the same"
    " end, once.",
    "C6": "a driver, an agent or its controller is lost: who comes back finds the run and its gang, and trains nothing"
    " twice.",
    "K1": "timeouts, 429 and 5xx of the API server: calls come to their end, and Retry-After is obeyed.",
    "K2": "an answer of the API server is lost: nothing is created or patched twice.",
    "K3": "watches end, fall silent, lose or reorder events: what is held equals the server's list again.",
    "K4": "a pod is evicted, preempted or drained: it is replaced, and no restart is charged.",
    "K6": "a gang does not fit, or a server refuses its pod: none of it starts, and it tries again later.",
    "K7": "the API server is away: trainings go on, what is known stays, the queue is kept.",
    "P2": "archives that lead out of their folder, link, lie or hide something: nothing is written.",
    "P3": "addresses that somebody else steers: no byte reaches a decoy.",
    "P5": "what a fork's commit may not: secrets, approval, publishing, rules of its own.",
    "P6": "deliveries that are forged, changed or sent again do nothing.",
    "P8": "packages and images that are not what was locked stop the build or the promotion.",
    "P9": "hostile pipelines are refused, and builds get no secret of others.",
    "A1": "ids of other tenants answer like absent ones, and each route has a rule.",
    "A2": "a gang's credential reaches its own prefix, and ends with its run.",
    "A3": "pods and accounts that ask for more than they may are refused.",
    "A4": "a gang reaches itself, name servers and its store, and no one else reaches it.",
    "PS1": "a server dies before or after any of its writes: each push is merged once, and weights are those of an"
    " unbroken server.",
    "PS2": "workers die, and their lines to the store are cut, reset, slow or silent: each block is merged or dropped"
    " once.",
    "PS3": "objects of the store are forged, cut or of another run: refused by reason, the run goes on.",
    "PS4": "merges of any order of arrivals equal those of a slow version in one process.",
    "PS5": "what a worker trained between its push and its pull is neither lost nor doubled.",
    "FL1": "members of a secure sum are lost: the sum is exact, or the round is lost.",
    "FL2": "a coordinator sends lists of keys that break a rule: no member answers.",
    "FL3": "attempts are lost and repeated: no key, mask or change is in two sums.",
    "FL4": "a coordinator sends code that nobody approved, other jobs or requests: a member runs none of it.",
    "FL5": "a run asks for more privacy than is left, or a member crashes: nothing begins unpaid, nothing is refunded.",
    "FL6": "a process of a federation dies: at most a round is repeated, none is merged twice.",
    "FL7": "members send poison: median and trimmed mean bear it, and answers are clipped and bounded.",
}
"""What happens in rows whose first test file does not say it in its first line."""
