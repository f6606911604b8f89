/** Ends the build as failed; `why` is its description, and stays the first line of it. */
def call(String why) {
    env.WHY = why
    currentBuild.description = why
    error(why)
}
