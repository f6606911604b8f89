/** Names the run in env.RUN: the same commit has the same one, whoever asks and however often. */
def call() {
    String last = ''
    while (last in ['', 'ended 20', 'ended 40']) {
        if (last != '') {
            sleep(time: 4, unit: 'MINUTES')
        }
        gangAgent(env.CHANGE_FORK ? 'check' : 'line') {
            String said = sh(returnStdout: true, script: 'gangline stage resolve --commit HEAD' +
                ' ${BRANCH_NAME:+--branch="${CHANGE_BRANCH:-$BRANCH_NAME}"}' +
                ' ${CHANGE_ID:+--pull-request="$CHANGE_ID"} ${CHANGE_FORK:+--trust=fork} || echo "ended $?"')
            echo(said)
            last = said.trim().tokenize('\n').last()
        }
    }
    if (!(last ==~ /[a-z][a-z0-9-]{0,19}-[0-9a-f]{8}-[a-z2-7]{6}/)) {
        error("stage resolve gave no run id, but: ${last}")
    }
    env.RUN = last
    currentBuild.displayName = last
}
