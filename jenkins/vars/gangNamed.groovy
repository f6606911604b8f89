/** The build is called after its run; without one it ends here: not triggered, or for `problem`. */
def call(String last, String problem) {
    if (last.startsWith('not triggered: ')) {
        currentBuild.result = 'NOT_BUILT'
        gangFail(last)
    }
    if (!(last ==~ /[a-z][a-z0-9-]{0,19}-[0-9a-f]{8}-[a-z2-7]{6}/)) {
        gangFail(problem ?: "stage resolve gave no run id, but: ${last}")
    }
    env.RUN = last
    currentBuild.displayName = last
}
