/** One stage of the run in env.RUN; answers its exit code, which is 0 or one of `later`. */
int call(String name, List<Integer> later = []) {
    int code = 0
    def source = gangSource()
    boolean strange = env.CHANGE_FORK && env.APPROVED != env.RUN
    gangAgent(strange ? 'check' : (name == 'build' ? 'build' : 'line')) {
        boolean fetched = gangCheckout(source)
        withEnv(["STAGE=${name}"]) {
            code = sh(returnStatus: true, script: 'gangline stage "$STAGE" --run "$RUN" --max-seconds 30' +
                ' --driver jenkins ${BUILD_URL:+--url="$BUILD_URL"}')
        }
        // 2: a stage of an open run needs its commit; that of a run which has ended answers without
        code = code == 2 && !fetched ? 40 : code
        gangDescribe()
    }
    if (code == 70) {
        currentBuild.result = 'ABORTED'
    }
    if (code != 0 && !later.contains(code)) {
        gangFail("stage ${name} of ${env.RUN} ended with ${code}")
    }
    return code
}
