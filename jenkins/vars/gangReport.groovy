/** What people open afterwards: the report, its verdicts as tests, one line as description. */
def call() {
    if (env.RUN) {
        gangAgent('line') {
            // 2: the run goes on without this build, and draws its report at its own end
            sh(returnStatus: true, script: 'gangline stage report --run "$RUN" --max-seconds 30')
            int page = sh(returnStatus: true, script: 'gangline report "$RUN" --format html --out report.html')
            int tests = sh(returnStatus: true, script: 'gangline report "$RUN" --format junit --out junit.xml')
            gangDescribe()
            if (page != 0 || tests != 0) {
                gangFail("the report of ${env.RUN} could not be drawn here: gangline report draws it")
            }
            junit(testResults: 'junit.xml', allowEmptyResults: true)
            archiveArtifacts(artifacts: 'report.html')
        }
    }
}
