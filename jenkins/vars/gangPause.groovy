/** Sleeps between two looks, with no agent held; answers how many seconds the next sleep has. */
int call(int seconds) {
    int end = env.ENDS_IN ? env.ENDS_IN.toInteger() : seconds
    if (end < seconds) {
        sleep(time: end > 5 ? end : 5, unit: 'SECONDS')
        return 5
    }
    sleep(time: seconds, unit: 'SECONDS')
    return seconds < 120 ? 2 * seconds : 240
}
