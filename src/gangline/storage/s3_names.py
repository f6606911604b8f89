"""Names that our client brings to an S3 server: a header of each write, a prefix of notes on uploads."""

WORD = "x-amz-meta-gangline-write"
"""Random in each write, so that one whose answer was lost is known again."""
NOTES = ".uploads~/"
"""Of an upload that was begun; no key begins so: `~` is outside their grammar."""
