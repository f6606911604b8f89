/** The build is called after its run; without one it ends here: not triggered, or for the reason in its description. */
def call(String last) {
    if (last.startsWith('not triggered: ')) {
        currentBuild.description = last
        currentBuild.result = 'NOT_BUILT'
        error(last)
    }
    if (!(last ==~ /[a-z][a-z0-9-]{0,19}-[0-9a-f]{8}-[a-z2-7]{6}/)) {
        error("stage resolve gave no run id, but: ${last}")
    }
    env.RUN = last
    currentBuild.displayName = last
}
