/** The commit of `source` in the workspace; false where it could not be fetched, which may be different at the next look. */
boolean call(def source) {
    // Every branch: which of them holds the commit, and the rules of the default one, decide what is published.
    def remote = source.userRemoteConfigs.first()
    String all = '+HEAD:refs/gangline/default +refs/heads/*:refs/remotes/origin/*'
    String problem = ''
    try {
        checkout(scmGit(branches: source.branches, extensions: source.extensions, userRemoteConfigs: [[
            url: remote.url, credentialsId: remote.credentialsId, refspec: [remote.refspec, all].join(' ')]]))
    } catch (IOException failed) {
        problem = "${failed}".trim()   // its words alone outlive the next step: a library's error need not be serializable
    }
    String away = 'the commit could not be fetched, as the log says; it is tried again'
    if (problem) {
        echo("${away}: ${problem}")
    }
    env.AWAY = problem ? away : ''
    return !problem
}
