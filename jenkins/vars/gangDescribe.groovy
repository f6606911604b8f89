/** The run's line becomes the build's description; in env.ENDS_IN stands after how many seconds its gang should end. */
def call() {
    env.ENDS_IN = ''
    String said = sh(returnStdout: true, script: 'gangline show "$RUN" --oneline --ends-in || true').trim()
    String line = said ? said.tokenize('\n').first() : ''
    currentBuild.description = [env.WHY ?: env.AWAY ?: '', line].join('\n').trim()
    String last = said ? said.tokenize('\n').last() : ''
    if (last ==~ /[0-9]{1,9}/) {
        env.ENDS_IN = last
    }
}
