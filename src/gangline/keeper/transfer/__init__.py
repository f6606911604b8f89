"""Separate processes that exchange files with the store: download for a pod, upload, collection of outputs.

The keeper starts them by module name and never imports them, so that it needs no client of a store."""
