/** The run's line becomes the build's description; in env.ENDS_IN stands after how many seconds its gang should end. */
def call() {
    env.ENDS_IN = ''
    String said = sh(returnStdout: true, script: 'gangline show "$RUN" --oneline --ends-in || true').trim()
    currentBuild.description = said ? said.tokenize('\n').first() : ''
    String last = said ? said.tokenize('\n').last() : ''
    if (last ==~ /[0-9]{1,9}/) {
        env.ENDS_IN = last
    }
}
