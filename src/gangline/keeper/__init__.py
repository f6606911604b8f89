"""The node agent: one keeper per node of a gang starts, watches and restarts its ranks and reports how they ended.

The keeper runs with the standard library alone; an import contract keeps that. It meets `gangline.train` in files,
exit codes and environment variables only, which are defined in `keeper.ipc`. Processes of `keeper.transfer` use the
store."""
