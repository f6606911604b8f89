# The cluster of the tests; included by the Makefile.
.PHONY: cluster-up cluster-down test-cluster bench-cluster

cluster-up: setup-dev ## a one-node Kubernetes cluster of our own: root, Linux, Go; minutes once, then seconds
	@$(BIN)/python -m tests.cluster.rig up --train --operators

cluster-down: setup-dev ## end it, put back what it changed
	@$(BIN)/python -m tests.cluster.rig down

test-cluster: setup-dev ## the suites that need a cluster; GANGLINE_TEST_KUBECONFIG names another than our own
	@$(SUITE) -n 2 --dist loadfile --timeout=900 --timeout-method=signal -m "cluster and not slow" tests

bench-cluster: setup-dev ## benchmarks on the cluster that is up
	@for each in watched_pods submit release; do echo "== $$each"; $(BIN)/python -m benchmarks.cluster.$$each || exit 1; done
