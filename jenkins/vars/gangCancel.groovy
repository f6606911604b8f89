/** Stops the run and its gang; returns when nothing of it is left. Harmless without one, and again. */
def call(String reason) {
    if (env.RUN) {
        gangAgent('line') {
            withEnv(["REASON=${reason}"]) {
                int code = sh(returnStatus: true, script: 'gangline cancel "$RUN" --reason="$REASON"')
                if (code != 0 && code != 70) {
                    error("${env.RUN} could not be cancelled: ${code}")
                }
            }
        }
    }
}
