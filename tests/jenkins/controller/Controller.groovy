import com.cloudbees.groovy.cps.Continuable
import com.cloudbees.groovy.cps.CpsTransformer
import com.cloudbees.groovy.cps.Outcome
import groovy.json.JsonOutput
import groovy.json.JsonSlurper
import org.codehaus.groovy.control.CompilerConfiguration

/**
 * A small controller around the engine that Jenkins runs pipelines with (groovy-cps): it carries out one build, and writes
 * the standing program down before it waits for anything, so it may be killed at any time and started again.
 * Arguments: the folder of the build. In it: build.json (what to run), state (the program), log, steps/N, result.json.
 */
class Controller {
    static final Set<String> OPTIONS = ['skipDefaultCheckout', 'durabilityHint', 'disableRestartFromStage',
                                        'buildDiscarder', 'logRotator', 'timeout'] as Set
    static final Set<String> MARKS = ['kubernetesAgent', 'nonresumable'] as Set
    static final Set<String> STEPS = ['sh', 'echo', 'error', 'sleep', 'input', 'checkout', 'scmGit', 'junit',
                                      'archiveArtifacts', 'booleanParam', 'queue'] as Set
    static final Set<String> BLOCKS = ['pipeline', 'agent', 'options', 'stages', 'stage', 'steps', 'post', 'aborted',
                                       'parameters', 'cleanup', 'node', 'container', 'withEnv', 'retry'] as Set
    /** How a script is run: apart from this controller, its end in a file. */
    static final String AROUND = 'echo $$ > "$1/pid"; /bin/sh -xe "$1/script" > "$1/out" 2>> "$1/err"; ' +
        'echo $? > "$1/rc.new"; mv "$1/rc.new" "$1/rc"'

    File home
    Map asked
    GroovyClassLoader loader
    Continuable program
    Build build
    Request waiting

    static void main(String[] given) {
        System.exit(new Controller(home: new File(given[0])).carryOut())
    }

    int carryOut() {
        asked = new JsonSlurper().parse(new File(home, 'build.json'))
        compile()
        File state = new File(home, 'state')
        state.exists() ? restore(state) : begin()
        while (program.isResumable()) {
            step(answer())
        }
        write('result.json', [result: build.result, description: build.description, displayName: build.displayName,
                              env: build.env, stages: build.stages, containers: build.containers])
        return 0
    }

    private void compile() {
        def settings = new CompilerConfiguration(scriptBaseClass: Program.name)
        settings.addCompilationCustomizers(new CpsTransformer())
        loader = new GroovyClassLoader(Controller.classLoader, settings)
        Program.steps = STEPS + OPTIONS + MARKS
        Program.blocks = BLOCKS
        Program.scm = { Build one -> source(one) }
        asked.library.each { name, path ->
            Program.library[name] = loader.parseClass(new File(path).text, "${name}.groovy")
        }
        Program.library['the job'] = loader.parseClass(asked.script.toString(), 'Job.groovy')
    }

    /** As SCMVar and branch-api answer: the first question pins the tip; of a branch that is gone nothing is left. */
    private Object source(Build build) {
        if (new File(home, 'branch-gone').exists()) { return new hudson.scm.NullSCM() }
        if (build.revision == null) {
            if (new File(home, 'forge-away').exists()) { throw new IOException('Could not determine exact tip revision') }
            build.revision = asked.ref ? git(new File(asked.repository), 'rev-parse', asked.ref) : asked.commit
        }
        Map remote = [url: asked.repository, credentialsId: 'forge-app', refspec: asked.ref ?: build.revision]
        return new GitSCM(branches: [[name: 'its branch']], extensions: [[commit: build.revision]], userRemoteConfigs: [remote])
    }

    private void begin() {
        build = new Build(env: new LinkedHashMap<String, String>(asked.env))
        Program script = Program.library['the job'].newInstance()
        script.attach(build)
        program = new Continuable(script)
        step(null)
    }

    /** On to the next wait, or to the end. */
    private void step(Outcome result) {
        Outcome next = result == null ? program.run0(new Outcome(null, null)) : program.run0(result)
        if (program.isResumable()) {
            waiting = (Request) next.replay()
            save()
        } else if (next.isFailure()) {
            note("the program broke: ${next.abnormal}")
            next.abnormal.printStackTrace()
            build.result = 'FAILURE'
        }
    }

    private Outcome answer() {
        try {
            return new Outcome(perform(waiting), null)
        } catch (Throwable error) {
            return new Outcome(null, error)
        }
    }

    private Object perform(Request request) {
        List given = request.given
        Map named = given && given[0] instanceof Map ? (Map) given[0] : [:]
        switch (request.name) {
            case 'echo': note(given[0].toString()); return null
            case 'error': throw new Exception(given[0].toString())
            case 'sleep': return pause(named)
            case 'input': return ask(named, request.number)
            case 'scmGit': return named
            case 'booleanParam': return offer(named)
            case 'checkout': return checkOut((Map) named.userRemoteConfigs[0], named.extensions[0].commit.toString())
            case 'queue': return queue(given[0].toString())
            case 'junit': return count(named.testResults)
            case 'archiveArtifacts': return keep(named.artifacts)
            case 'sh': return shell(named ?: [script: given[0]], request.number)
            default: return request.name
        }
    }

    private Object pause(Map how) {
        assert how.unit == 'SECONDS'
        long end = System.currentTimeMillis() + (long) (how.time * (double) asked.milliseconds_a_minute / 60)
        note("sleeps ${how.time} s; agents held: ${build.nodes.size()}")
        while (System.currentTimeMillis() < end) { stopIfAsked(); Thread.sleep(20) }
        return null
    }

    /** A parameter is a variable of the build, as whoever started it filled it in. */
    private Object offer(Map parameter) {
        build.env.putIfAbsent(parameter.name.toString(), parameter.defaultValue.toString())
        return null
    }

    private Object ask(Map how, int number) {
        write("input-${number}.json", [message: how.message.toString(), submitter: how.submitter, held: build.nodes.size(),
                                         description: build.description])
        File answer = new File(home, "answer-${number}")
        while (!answer.exists()) { stopIfAsked(); Thread.sleep(20) }
        return answer.text.trim()
    }

    /** Until an agent comes; whose place in the queue is lost, by `queue-lost`, ends as Jenkins ends it. */
    private Object queue(String label) {
        File lost = new File(home, 'queue-lost')
        if (new File(home, 'agents-away').exists()) { note("waits for an agent ${label}") }
        while (new File(home, 'agents-away').exists()) {
            if (lost.delete()) { throw new Lost("Queue task was cancelled: ${label}", null) }
            stopIfAsked()
            Thread.sleep(20)
        }
        return null
    }

    /** As the plugin does: what the refspec names, and nothing else of the remote. */
    private Object checkOut(Map remote, String commit) {
        File place = workspace()
        if (!new File(place, '.git').exists()) {
            git(place.parentFile, 'init', '-q', place.path)
            git(place, 'remote', 'add', 'origin', remote.url.toString())
        }
        git(place, *(['fetch', '-q', 'origin'] + remote.refspec.toString().tokenize()))
        git(place, 'checkout', '-q', '--force', '--detach', commit)
        return null
    }

    /** What git says; fails as the plugin does, by an IOException. */
    private static String git(File where, String... words) {
        Process process = (['git'] + words.toList()).execute(null as List, where)
        StringBuilder said = new StringBuilder()
        StringBuilder problem = new StringBuilder()
        process.waitForProcessOutput(said, problem)
        if (process.exitValue() != 0) { throw new IOException("git ${words}: ${problem}") }
        return said.toString().trim()
    }

    private Object count(String file) {
        def nodes = new XmlSlurper().parse(new File(workspace(), file)).depthFirst()
        def cases = nodes.findAll { it.name() == 'testcase' }
        write('junit.json', [tests: cases.size(), failures: cases.count { it.failure.size() > 0 }])
        return null
    }

    private Object keep(String file) {
        new File(home, 'artifacts').mkdirs()
        new File(home, "artifacts/${file}").bytes = new File(workspace(), file).bytes
        return null
    }

    /** A process of the agent: it outlives this controller, and its end is found in a file. */
    private Object shell(Map how, int number) {
        assert build.nodes: 'a step that needs an agent, and none is held'
        File folder = new File(home, "steps/${number}")
        if (!new File(folder, 'pid').exists()) { launch(folder, how.script.toString()) }
        int code = waitFor(folder)
        if (how.returnStatus) { return code }
        if (code != 0) { throw new Exception("script returned exit code ${code}") }
        return how.returnStdout ? new File(folder, 'out').text : null
    }

    private void launch(File folder, String script) {
        folder.mkdirs()
        new File(folder, 'script').text = script
        def builder = new ProcessBuilder(['setsid', '/bin/sh', '-c', AROUND, 'agent', folder.path])
        builder.directory(workspace())
        builder.environment().clear()
        builder.environment().putAll(environment())
        builder.redirectInput(new File('/dev/null')).redirectOutput(new File(folder, 'around')).redirectErrorStream(true)
        builder.start()
        File pid = new File(folder, 'pid')
        while (!pid.exists() || !pid.text.trim()) { Thread.sleep(5) }
    }

    /** Of the agent alone, then the build's, then the block's: nothing of this controller's own. */
    private Map<String, String> environment() {
        Map<String, String> agent = asked.agents[build.nodes.last()]
        Map<String, String> all = [:] + agent + build.env.findAll { it.value != null }
        build.inner.flatten().each { String pair ->
            int sign = pair.indexOf('=')
            all[pair.substring(0, sign)] = pair.substring(sign + 1)
        }
        return all
    }

    private int waitFor(File folder) {
        File code = new File(folder, 'rc')
        String pid = new File(folder, 'pid').text.trim()
        while (!code.exists()) {
            if (new File(home, 'abort').exists() && !build.env.STOPPED) { end(pid); stopIfAsked() }
            boolean isThere = new File("/proc/${pid}").exists()
            if (!isThere && !code.exists()) { throw new Lost("process ${pid} is gone", build.nodes.last()) }
            Thread.sleep(20)
        }
        return code.text.trim() as int
    }

    private static void end(String pid) {
        ['/bin/kill', '-TERM', '--', "-${pid}"].execute().waitFor()
        for (int tries = 0; tries < 500 && new File("/proc/${pid}").exists(); tries++) { Thread.sleep(20) }
        ['/bin/kill', '-KILL', '--', "-${pid}"].execute().waitFor()
    }

    private void stopIfAsked() {
        File abort = new File(home, 'abort')
        if (abort.exists() && !build.env.STOPPED) {
            build.env.STOPPED = 'yes'
            throw new Stopped("stopped: ${abort.text.trim()}")
        }
    }

    private File workspace() {
        File place = new File(asked.workspace)
        place.mkdirs()
        return place
    }

    private void note(String text) { new File(home, 'log') << "${text}\n" }

    private void write(String name, Map content) {
        File fresh = new File(home, "${name}.new")
        fresh.text = JsonOutput.toJson(content)
        fresh.renameTo(new File(home, name))
    }

    private void save() {
        File fresh = new File(home, 'state.new')
        fresh.withObjectOutputStream { it.writeObject([program, build, waiting]) }
        fresh.renameTo(new File(home, 'state'))
    }

    private void restore(File state) {
        note('== the controller is back')
        List standing = (List) state.withObjectInputStream(loader) { it.readObject() }
        (program, build, waiting) = [(Continuable) standing[0], (Build) standing[1], (Request) standing[2]]
    }
}
