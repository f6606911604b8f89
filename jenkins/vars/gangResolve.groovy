/** Names the run in env.RUN: the same commit has the same one, whoever asks and however often. */
def call() {
    def source = gangSource()
    int pause = 5
    String last = ''
    String problem = ''
    while (last in ['', 'ended 20', 'ended 40']) {
        pause = last == '' ? pause : gangPause(pause)
        gangAgent(env.CHANGE_FORK ? 'check' : 'line') {
            String said = gangCheckout(source) ? sh(returnStdout: true, script:
                'case "$AGAIN" in true) set -- --again ;; *) set -- --pushed ;; esac;' +
                ' gangline stage resolve --commit HEAD --driver jenkins "$@"' +
                ' ${BRANCH_NAME:+--branch="${CHANGE_BRANCH:-$BRANCH_NAME}"}' +
                ' ${CHANGE_ID:+--pull-request="$CHANGE_ID"} ${CHANGE_FORK:+--trust=fork} 2>&1 || echo "ended $?"') : 'ended 40'
            echo(said)
            for (String line in said.trim().tokenize('\n')) {
                last = line
                problem = line.startsWith('error: ') ? line : problem
            }
        }
        currentBuild.description = env.AWAY ?: problem
    }
    gangNamed(last, problem)
}
