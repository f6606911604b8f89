/** Runs `body` beside the commit, in a pod of its own that goes afterwards; a pod that is lost is replaced. */
def call(String kind, Closure body) {
    boolean plain = env.GANGLINE_AGENTS == 'plain'
    if (plain && env.CHANGE_FORK) {
        error('a commit of a fork needs an agent of its own, and the agents of this Jenkins are plain machines')
    }
    retry(count: 3, conditions: [kubernetesAgent(), nonresumable()]) {
        node("gangline-${kind}") {
            // Every branch: which of them holds the commit, and the rules of the default one, decide what is published.
            def remote = scm.userRemoteConfigs.first()
            String all = '+HEAD:refs/gangline/default +refs/heads/*:refs/remotes/origin/*'
            checkout(scmGit(branches: scm.branches, extensions: scm.extensions, userRemoteConfigs: [[
                url: remote.url, credentialsId: remote.credentialsId, refspec: [remote.refspec, all].join(' ')]]))
            if (plain) {
                body()
            } else {
                container('gangline') { body() }
            }
        }
    }
}
