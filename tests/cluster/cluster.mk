# The cluster of the tests; included by the Makefile.
.PHONY: cluster-up cluster-down test-cluster

cluster-up: setup-dev ## a one-node Kubernetes cluster of our own: root, Linux, Go; minutes once, then seconds
	@$(BIN)/python -m tests.cluster.rig up --train

cluster-down: setup-dev ## end it, put back what it changed
	@$(BIN)/python -m tests.cluster.rig down

test-cluster: setup-dev ## the suites that need a cluster; GANGLINE_TEST_KUBECONFIG names another than our own
	@$(PYTEST) -q -m "cluster and not slow" tests
