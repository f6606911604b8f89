/** What people open afterwards: the report, its verdicts as tests, one line as description. */
def call() {
    if (env.RUN) {
        gangAgent('line') {
            // 2: the run goes on without this build, and draws its report at its own end
            sh(returnStatus: true, script: 'gangline stage report --run "$RUN" --max-seconds 30')
            sh('gangline report "$RUN" --format html --out report.html')
            sh('gangline report "$RUN" --format junit --out junit.xml')
            junit(testResults: 'junit.xml', allowEmptyResults: true)
            archiveArtifacts(artifacts: 'report.html')
            gangDescribe()
        }
    }
}
