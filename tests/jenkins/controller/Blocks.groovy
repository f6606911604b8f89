// What a controller does for sections and for steps with a block, as a program itself: it stands still with the pipeline.

def pipeline(Closure body) { body() }

/** The section of a pipeline, and the condition of `retry`. */
def agent(Object where = 'agent') {
    assert where in ['none', 'agent']
    return where
}

def options(Closure body) { body() }

def stages(Closure body) {
    try {
        body()
    } catch (Throwable error) {
        note(error)
    }
}

/** The result of a build only gets worse, in the order that Jenkins has. */
def note(Throwable error) {
    echo("ended by ${error}")
    List order = ['SUCCESS', 'UNSTABLE', 'FAILURE', 'NOT_BUILT', 'ABORTED']
    String found = error instanceof Stopped ? error.result : 'FAILURE'
    build.result = order.indexOf(found) > order.indexOf(build.result) ? found : build.result
}

def parameters(Closure body) { body() }

def stage(String name, Closure body) {
    echo("== ${name}")
    build.stages = build.stages + [name]
    body()
}

def steps(Closure body) { body() }

def post(Closure body) { body() }

def ending(Closure body) {
    try {
        body()
    } catch (Throwable error) {
        echo("after the end: ${error}")
        build.result = build.result == 'SUCCESS' ? 'FAILURE' : build.result
    }
}

def aborted(Closure body) { if (build.result == 'ABORTED') { ending(body) } }

def cleanup(Closure body) { ending(body) }

/** Waits for an agent first: as long as the file `agents-away` is there. */
def node(String label, Closure body) {
    queue(label)
    build.nodes = build.nodes + [label]
    try {
        return body()
    } finally {
        build.nodes = build.nodes.dropRight(1)
    }
}

def container(String name, Closure body) {
    assert name == 'gangline'
    build.containers += 1
    body()
}

def withEnv(List pairs, Closure body) {
    build.enter(pairs)
    try {
        return body()
    } finally {
        build.leave()
    }
}

/** `agent` matches every lost agent; `kubernetesAgent` only one that was known, and a pod. */
def retry(Map how, Closure body) {
    int tries = 0
    while (true) {
        tries += 1
        try {
            return body()
        } catch (Lost error) {
            boolean pod = error.node && build.env.GANGLINE_AGENTS != 'plain'
            boolean matches = 'agent' in how.conditions || (pod && 'kubernetesAgent' in how.conditions)
            if (tries >= how.count || !matches) { throw error }
            echo("again on another agent: ${error.message}")
        }
    }
}
