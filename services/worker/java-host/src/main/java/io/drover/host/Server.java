package io.drover.host;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.reflect.InvocationTargetException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.connect.connector.Connector;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.config.Configurator;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Answers the engine and its executors on a Unix socket: a line of JSON for each request and each
 * answer. Rows are Arrow streams, after the request of a put and after the answer of a fetch.
 */
final class Server {
    private static final Logger LOG = LoggerFactory.getLogger(Server.class);
    private static final int LINE_MAX = 64 << 20;

    private final PluginSet plugins;
    private final Map<Long, ConnectorRun> connectors = new ConcurrentHashMap<>();
    private final Map<Long, TaskRun> tasks = new ConcurrentHashMap<>();
    private final Map<Long, Step> steps = new ConcurrentHashMap<>();
    private final AtomicLong lastRun = new AtomicLong();

    private Server(String pluginPath) {
        plugins = new PluginSet(pluginPath);
    }

    /** Serves until the process ends. The socket exists when the host is ready. */
    static void serve(Path socket, String pluginPath) throws IOException {
        Server server = new Server(pluginPath);
        try (ServerSocketChannel listening = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            listening.bind(UnixDomainSocketAddress.of(socket));
            while (true) {
                SocketChannel channel = listening.accept();
                TaskRun.daemon(() -> server.converse(channel), "calls").start();
            }
        }
    }

    private void converse(SocketChannel channel) {
        try (channel;
                InputStream in = new BufferedInputStream(Channels.newInputStream(channel), 1 << 16);
                OutputStream out = new BufferedOutputStream(Channels.newOutputStream(channel), 1 << 16)) {
            while (true) {
                String line = line(in);
                if (line == null) {
                    return;
                }
                answer(Json.MAPPER.readTree(line), in, out);
                out.flush();
            }
        } catch (IOException closed) {
            LOG.debug("a connection ended", closed);
        }
    }

    private void answer(JsonNode request, InputStream in, OutputStream out) throws IOException {
        ObjectNode answer = Json.object();
        List<StepRows.Out> made = null;
        try {
            if (request.get("call").asText().equals("apply")) {
                made = applied(request, StepRows.read(in));
            }
            ObjectNode found = made != null ? null : call(request.get("call").asText(), request, in);
            answer.set("ok", found == null ? Json.object() : found);
        } catch (Throwable error) { // a plugin may throw anything
            Throwable cause = error instanceof InvocationTargetException && error.getCause() != null
                ? error.getCause() : error;
            ObjectNode described = answer.putObject("error");
            if (cause instanceof TaskFailedException failed) {
                described.put("phase", failed.phase);
                cause = failed.getCause();
            }
            described.put("message", Failures.message(cause));
            described.put("trace", Failures.trace(cause));
            described.put("class", cause.getClass().getName());
            described.put("retriable", cause instanceof RetriableException);
        }
        try {
            out.write(Json.MAPPER.writeValueAsBytes(answer));
            out.write('\n');
            out.flush();
        } catch (IOException closed) {
            abandon(request, answer);
            throw closed;
        }
        if (made != null) {
            StepRows.write(made, out);
        }
        if (answer.has("ok") && request.get("call").asText().equals("fetch")) {
            try {
                ((TaskRun.Source) task(request)).fetch(request, out);
            } catch (IOException closed) {
                throw closed;
            } catch (Exception error) {
                throw new IOException(error); // the reader sees an incomplete stream
            }
        }
    }

    /** Stops what a call started for a caller that no longer waits, as the call took too long. */
    private void abandon(JsonNode request, ObjectNode answer) {
        JsonNode run = answer.path("ok").path("run");
        if (!run.isMissingNode()) {
            String stop = switch (request.get("call").asText()) {
                case "start_connector" -> "stop_connector";
                case "start_step" -> "stop_step";
                default -> "stop_task";
            };
            try {
                call(stop, Json.object().set("run", run), InputStream.nullInputStream());
            } catch (Throwable error) { // a plugin may throw anything
                LOG.warn("what started too late was not stopped", error);
            }
        }
    }

    private ObjectNode call(String name, JsonNode request, InputStream in) throws Exception {
        switch (name) {
            case "hello" -> {
                return Json.object().put("pid", ProcessHandle.current().pid());
            }
            case "definition" -> {
                return definition(request.get("class").asText());
            }
            case "alter_offsets" -> {
                return OffsetChanges.alterOffsets(plugins, Json.texts(request.get("config")), request.get("changes"));
            }
            case "start_connector" -> {
                ConnectorRun run = new ConnectorRun(plugins, request);
                return Json.object().put("run", added(connectors, run));
            }
            case "task_configs" -> {
                return connectors.get(request.get("run").asLong()).taskConfigs(request.get("max").asInt());
            }
            case "connector_events" -> {
                ConnectorRun run = connectors.get(request.get("run").asLong());
                return run == null ? Json.object().put("ended", true) : run.events(request.get("wait_ms").asLong());
            }
            case "connector_offsets" -> {
                ConnectorRun run = connectors.get(request.get("run").asLong());
                if (run != null) {
                    run.answerOffsets(request);
                }
                return null;
            }
            case "stop_connector" -> {
                ConnectorRun run = connectors.remove(request.get("run").asLong());
                if (run != null) {
                    run.stop();
                }
                return null;
            }
            case "start_source" -> {
                TaskRun.Source source = new TaskRun.Source(plugins, request);
                return started(source).put("acknowledges", source.acknowledges());
            }
            case "start_sink" -> {
                return started(new TaskRun.Sink(plugins, request));
            }
            case "await_start" -> {
                TaskRun run = task(request);
                boolean isStarted = run.awaitStart(request.get("wait_ms").asLong());
                return Json.object().put("started", isStarted).put("phase", run.phase.name())
                    .put("since_ms", run.phase.sinceMs());
            }
            case "set_logger" -> {
                String logger = request.get("logger").asText();
                Configurator.setLevel(logger.isEmpty() ? LogManager.ROOT_LOGGER_NAME : logger,
                    Level.valueOf(request.get("level").asText()));
                return null;
            }
            case "stack" -> {
                return Json.object().put("stack", task(request).phase.stack());
            }
            case "poll" -> {
                return ((TaskRun.Source) task(request)).poll(request);
            }
            case "fetch" -> {
                ((TaskRun.Source) task(request)).check();
                return null;
            }
            case "placed" -> {
                ((TaskRun.Source) task(request)).placed(request);
                return null;
            }
            case "durable" -> {
                ((TaskRun.Source) task(request)).durable(request);
                return null;
            }
            case "commit_overdue" -> {
                ((TaskRun.Source) task(request)).commitOverdue();
                return null;
            }
            case "assign" -> {
                ((TaskRun.Sink) task(request)).assign(request);
                return null;
            }
            case "put" -> {
                ((TaskRun.Sink) task(request)).put(request, in);
                return null;
            }
            case "progress" -> {
                return ((TaskRun.Sink) task(request)).progress(request);
            }
            case "defer" -> {
                ((TaskRun.Sink) task(request)).defer(request);
                return null;
            }
            case "start_step" -> {
                return Json.object().put("run", added(steps, new Step(plugins, plugins.folderLoader(request.get("path").asText()), request)));
            }
            case "stop_step" -> {
                Step step = steps.remove(request.get("run").asLong());
                if (step != null) {
                    step.close();
                }
                return null;
            }
            case "step_progress" -> {
                Step step = steps.get(request.get("run").asLong());
                return step == null ? Json.object().put("since_ms", 0).put("stack", "")
                    : Json.object().put("since_ms", step.phase.sinceMs()).put("stack", step.phase.stack());
            }
            case "stop_task" -> {
                TaskRun run = tasks.remove(request.get("run").asLong());
                return Json.object().put("ended", run == null || run.stop());
            }
            default -> throw new IllegalArgumentException("unknown call " + name);
        }
    }

    private List<StepRows.Out> applied(JsonNode request, List<StepRows.In> records) throws Exception {
        Step step = steps.get(request.get("run").asLong());
        if (step == null) {
            throw new IllegalArgumentException("the step has ended");
        }
        return step.apply(request.get("what").asText(), records);
    }

    /** The settings of a class, in the form of the answers of describe. */
    private ObjectNode definition(String name) throws Exception {
        Connector connector = plugins.newConnector(Map.of("connector.class", name));
        ClassLoader loader = connector.getClass().getClassLoader();
        ObjectNode answer = Json.object();
        answer.put("class", name);
        answer.put("version", plugins.within(loader, connector::version));
        answer.set("settings", Describe.settings(plugins.within(loader, () -> Describe.definition(connector))));
        return answer;
    }

    private ObjectNode started(TaskRun run) throws Exception {
        for (Map.Entry<Long, TaskRun> each : tasks.entrySet()) {
            // a run that the engine gave up, as its call hung
            if (each.getValue().of.id().equals(run.of.id()) && tasks.remove(each.getKey(), each.getValue())) {
                each.getValue().stop();
            }
        }
        run.start();
        return Json.object().put("run", added(tasks, run));
    }

    private <T> long added(Map<Long, T> runs, T run) {
        long id = lastRun.incrementAndGet();
        runs.put(id, run);
        return id;
    }

    private TaskRun task(JsonNode request) {
        TaskRun found = tasks.get(request.get("run").asLong());
        if (found == null) {
            throw new IllegalArgumentException("the task has ended");
        }
        return found;
    }

    private static String line(InputStream in) throws IOException {
        ByteArrayOutputStream text = new ByteArrayOutputStream();
        for (int each = in.read(); each != '\n'; each = in.read()) {
            if (each < 0) {
                if (text.size() == 0) {
                    return null;
                }
                throw new EOFException();
            }
            if (text.size() == LINE_MAX) {
                throw new IOException("a request has more than " + LINE_MAX + " bytes");
            }
            text.write(each);
        }
        return text.toString(StandardCharsets.UTF_8);
    }
}
