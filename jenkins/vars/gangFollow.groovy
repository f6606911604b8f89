/** A stage that may take hours or wait for somebody: looked at for half a minute, then left with no agent held. */
def call(String name) {
    List<Integer> later = [20, 40, 75]
    int pause = 5
    int code = gangStage(name, later)
    while (code != 0) {
        if (code == 20 && env.CHANGE_FORK && env.APPROVED != env.RUN) {
            gangApprove()
        } else {
            pause = gangPause(pause)
        }
        code = gangStage(name, later)
    }
}
