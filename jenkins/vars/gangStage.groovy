/** One stage of the run in env.RUN; answers its exit code, which is 0 or one of `later`. */
int call(String name, List<Integer> later = []) {
    int code = 0
    boolean strange = env.CHANGE_FORK && env.APPROVED != env.RUN
    gangAgent(strange ? 'check' : (name == 'build' ? 'build' : 'line')) {
        withEnv(["STAGE=${name}"]) {
            code = sh(returnStatus: true, script: 'gangline stage "$STAGE" --run "$RUN" --max-seconds 30' +
                ' --driver jenkins ${BUILD_URL:+--url="$BUILD_URL"}')
        }
        gangDescribe()
    }
    if (code == 70) {
        currentBuild.result = 'ABORTED'
    }
    if (code != 0 && !later.contains(code)) {
        error("stage ${name} of ${env.RUN} ended with ${code}")
    }
    return code
}
