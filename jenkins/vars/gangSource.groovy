/** `scm`, read before there is an agent: the first reading fixes the commit. A build whose branch is gone ends here. */
def call() {
    def source = null
    String problem = ''
    try {
        source = scm
    } catch (Exception failed) {
        problem = "${failed}".trim()
    }
    if (source == null) {
        echo(problem)
        gangFail('the forge named no commit for this build, as its log says; build it again')
    }
    if (!source.hasProperty('userRemoteConfigs')) {
        currentBuild.result = 'ABORTED'
        gangFail('the branch or pull request of this build is gone')
    }
    return source
}
