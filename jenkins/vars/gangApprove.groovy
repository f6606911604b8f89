/** Asks a maintainer before code of a fork runs; nobody holds an agent while they read. */
def call() {
    String who = input(
        message: "This commit is of a fork. Read it before it runs on your servers. Run: ${env.RUN}",
        ok: 'Let this commit run', submitter: 'gangline-maintainers', submitterParameter: 'WHO')
    gangAgent('line') {
        withEnv(["WHO=${who}"]) {
            sh('gangline approve "$RUN" --who="$WHO"')
        }
    }
    env.APPROVED = env.RUN
}
