/** Runs `body` beside the commit, in a pod of its own that goes afterwards; a pod that is lost is replaced. */
def call(String kind, Closure body) {
    boolean plain = env.GANGLINE_AGENTS == 'plain'
    if (plain && env.CHANGE_FORK) {
        error('a commit of a fork needs an agent of its own, and the agents of this Jenkins are plain machines')
    }
    retry(count: 3, conditions: [kubernetesAgent(), nonresumable()]) {
        node("gangline-${kind}") {
            checkout(scm)
            if (plain) {
                body()
            } else {
                container('gangline') { body() }
            }
        }
    }
}
