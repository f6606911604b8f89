/** Asks a maintainer before code of a fork runs; nobody holds an agent while they read. */
def call() {
    currentBuild.description = "waits for gangline-maintainers, who let a fork in or not: ${env.CHANGE_URL}"
    String who = input(
        message: "This commit is of a fork. Read it before it runs on your servers: ${env.CHANGE_URL} Run: ${env.RUN}",
        ok: 'Let this commit run', submitter: 'gangline-maintainers,gangline-maintainer', submitterParameter: 'WHO')
    if (who in [null, '', 'null', 'anonymous']) {
        gangFail('an approval names a person: build it again, log in, and answer the question on the page of the build')
    }
    gangAgent('line') {
        withEnv(["WHO=${who}"]) {
            int code = sh(returnStatus: true, script: 'gangline approve "$RUN" --who="$WHO"')
            if (code != 0) {
                gangFail("the approval was not written, exit code ${code}: build it again, and answer again")
            }
        }
    }
    env.APPROVED = env.RUN
}
