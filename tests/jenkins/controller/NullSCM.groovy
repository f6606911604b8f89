package hudson.scm

/** What `scm` is once the branch of a job is gone: branch-api makes it a Branch.Dead, which has nothing else. */
class NullSCM implements Serializable { }
