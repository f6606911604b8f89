"""Names that this client adds on an S3 server: a header of each write, a prefix of notes on uploads."""

WRITE_ID_HEADER = "x-amz-meta-gangline-write"
"""Random in each write, so that one whose answer was lost is known again."""
UPLOAD_NOTES_PREFIX = ".uploads~/"
"""Prefix of the note about an upload that was begun; no key begins so: `~` is outside their grammar."""
