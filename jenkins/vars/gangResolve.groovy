/** Names the run in env.RUN: the same commit has the same one, whoever asks and however often. */
def call() {
    int pause = 5
    String last = ''
    while (last in ['', 'ended 20', 'ended 40']) {
        pause = last == '' ? pause : gangPause(pause)
        gangAgent(env.CHANGE_FORK ? 'check' : 'line') {
            String said = sh(returnStdout: true, script:
                'case "$AGAIN" in true) set -- --again ;; *) set -- --pushed ;; esac;' +
                ' gangline stage resolve --commit HEAD --driver jenkins "$@"' +
                ' ${BRANCH_NAME:+--branch="${CHANGE_BRANCH:-$BRANCH_NAME}"}' +
                ' ${CHANGE_ID:+--pull-request="$CHANGE_ID"} ${CHANGE_FORK:+--trust=fork} 2>&1 || echo "ended $?"')
            echo(said)
            for (String line in said.trim().tokenize('\n')) {
                last = line
                currentBuild.description = line.startsWith('error: ') ? line : currentBuild.description
            }
        }
    }
    gangNamed(last)
}
