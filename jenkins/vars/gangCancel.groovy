/** Stops the run and its gang, unless another build has taken the run over; returns when nothing of it is left. */
def call() {
    String why = env.WHY ?: 'the build was aborted'
    int pause = 5
    int code = env.RUN ? 75 : 0
    while (code in [20, 40, 75]) {
        gangAgent('line') {
            withEnv(["REASON=${why}"]) {
                code = sh(returnStatus: true, script:
                    'gangline cancel "$RUN" --reason="$REASON" ${BUILD_URL:+--url="$BUILD_URL"}')
            }
        }
        pause = code in [20, 40, 75] ? gangPause(pause) : pause
    }
    if (code != 0 && code != 70) {
        gangFail("${env.RUN} could not be cancelled, exit code ${code}: gangline cancel stops it")
    }
}
