import com.cloudbees.groovy.cps.Continuable
import com.cloudbees.groovy.cps.SerializableScript
import org.codehaus.groovy.runtime.InvokerHelper

/** What a program asks the controller for, and then waits for. */
class Request implements Serializable {
    String name
    List given
    int number
}

/** Somebody aborted the build, or Jenkins did: FlowInterruptedException of workflow-step-api. */
class Stopped extends InterruptedException {
    String result = 'ABORTED'

    Stopped(String message) { super(message) }
}

/** The agent went away under a step, or never came: the same exception, with a cause that the condition `agent` knows. */
class Lost extends Stopped {
    /** Not known of one that never came. */
    String node

    Lost(String message, String node) { super(message); this.node = node }
}

/** What the git plugin knows of one commit: `scm` of a job whose branch is there. */
class GitSCM implements Serializable {
    List<Map> userRemoteConfigs
    List<Map> branches
    /** In Jenkins a BuildChooserSetting, which pins the commit. */
    List<Map> extensions
}

/** What is known of a build; `env` and `currentBuild` of a pipeline. */
class Build implements Serializable {
    Map<String, String> env = [:]
    List<List<String>> inner = []
    List<String> nodes = []
    List<String> stages = []
    String description = ''
    String displayName = ''
    String result = 'SUCCESS'
    int asked = 0
    int containers = 0
    /** SCMRevisionAction: the commit, from the first time that `scm` was read. */
    String revision

    /** Variables of a block, until it is left. */
    void enter(List pairs) { inner = inner + [pairs*.toString()] }

    void leave() { inner = inner.dropRight(1) }
}

/** Variables of the build; those that were never set are null. */
class Environment implements Serializable {
    Build build

    Object getProperty(String name) { build.env[name] }

    void setProperty(String name, Object value) {
        if (name == 'build') {
            this.@build = value
        } else {
            build.env[name] = value == null ? null : "${value}".toString()
        }
    }
}

/** Base of pipeline, steps and blocks: a name is looked up in the library, the blocks, the controller, in this order. */
abstract class Program extends SerializableScript {
    static Map<String, Class> library = [:]
    static Set<String> blocks = [] as Set
    static Set<String> steps = [] as Set
    /** What the job says of its repository, asked anew each time. */
    static Closure scm = { Build build -> null }
    Build build

    /** A plain assignment would go into the script's variables. */
    void attach(Build build) { this.@build = build }

    Object invokeMethod(String name, Object given) {
        List arguments = InvokerHelper.asList(given)
        if (library.containsKey(name)) {
            return InvokerHelper.invokeMethod(made(library[name]), 'call', arguments as Object[])
        }
        if (blocks.contains(name) && !getClass().name.equals('Blocks')) {
            return InvokerHelper.invokeMethod(made(library['Blocks']), name, arguments as Object[])
        }
        if (steps.contains(name)) {
            build.asked += 1
            return Continuable.suspend(new Request(name: name, given: arguments, number: build.asked))
        }
        return super.invokeMethod(name, given)
    }

    Object getProperty(String name) {
        switch (name) {
            case 'env': return new Environment(build: build)
            case 'currentBuild': return build
            case 'scm': return Program.@scm.call(build)
            case 'none': return 'none'
            case 'build': return build
            default: return super.getProperty(name)
        }
    }

    Object made(Class kind) {
        Program script = kind.newInstance()
        script.attach(build)
        return script
    }
}
