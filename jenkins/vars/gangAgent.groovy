/** Runs `body` on an agent, a pod of its own that goes afterwards. One that is lost is replaced, three times at most. */
def call(String kind, Closure body) {
    boolean plain = env.GANGLINE_AGENTS == 'plain'
    if (plain && env.CHANGE_FORK) {
        gangFail('a commit of a fork needs an agent of its own, and the agents of this Jenkins are plain machines')
    }
    int lost = -1
    retry(count: 4, conditions: [agent(), nonresumable()]) {
        lost += 1
        if (lost == 3) {
            gangFail('three agents were lost one after the other: the run goes on, and a build of the same commit finds it')
        }
        node("gangline-${kind}") {
            if (plain) {
                body()
            } else {
                container('gangline') { body() }
            }
        }
    }
}
