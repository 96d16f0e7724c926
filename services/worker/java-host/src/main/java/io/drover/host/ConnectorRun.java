package io.drover.host;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.PluginMetrics;
import org.apache.kafka.connect.connector.Connector;
import org.apache.kafka.connect.connector.ConnectorContext;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.runtime.TaskLoops;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkConnectorContext;
import org.apache.kafka.connect.source.SourceConnectorContext;
import org.apache.kafka.connect.storage.OffsetStorageReader;
import org.apache.kafka.connect.storage.OffsetStorageReaderImpl;

/** A plugin's connector, which splits its work into tasks. */
final class ConnectorRun {
    private static final long OFFSETS_WAIT_MS = 10_000;
    private final PluginSet plugins;
    private final Connector connector;
    private final ClassLoader loader;
    private final OffsetStore offsets;
    private boolean isReconfigured;
    private Throwable raised;
    private boolean wantsOffsets;
    private long answerCount;
    private String offsetsError;
    private boolean isStarted;

    ConnectorRun(PluginSet plugins, JsonNode request) throws Exception {
        this.plugins = plugins;
        Map<String, String> config = Json.texts(request.get("config"));
        connector = plugins.newConnector(config);
        loader = plugins.loader(config.get("connector.class"), PluginSet.range(config));
        String name = request.get("connector").asText();
        offsets = new OffsetStore(request.get("offsets"), written -> {});
        plugins.within(loader, () -> {
            connector.initialize(connector instanceof SinkConnector ? new SinkContext(name) : new SourceContext(name));
            try {
                connector.start(config);
            } catch (Throwable failure) {
                stopAfter(failure);
                throw failure;
            }
            return null;
        });
        synchronized (this) {
            isStarted = true;
        }
    }

    /** Ends the threads and connections of a start that failed; the error of the start is reported. */
    private void stopAfter(Throwable failure) {
        try {
            connector.stop();
        } catch (Exception | LinkageError | StackOverflowError | AssertionError error) {
            if (error != failure) {
                failure.addSuppressed(error);
            }
        }
    }

    ObjectNode taskConfigs(int max) throws Exception {
        Class<?> taskClass = plugins.within(loader, connector::taskClass);
        List<Map<String, String>> found = plugins.within(loader, () -> connector.taskConfigs(max));
        ObjectNode answer = Json.object();
        answer.put("task_class", taskClass == null ? null : taskClass.getName());
        ArrayNode configs = answer.putArray("configs");
        if (found != null) {
            found.forEach(each -> configs.add(Json.MAPPER.valueToTree(each)));
        }
        return answer;
    }

    /** Waits until the connector requests new task configs or offsets, or raises an error. */
    synchronized ObjectNode events(long waitMs) throws InterruptedException {
        if (!isReconfigured && raised == null && !wantsOffsets) {
            wait(waitMs);
        }
        ObjectNode answer = Json.object();
        answer.put("wants_offsets", wantsOffsets);
        wantsOffsets = false;
        answer.put("reconfigure", isReconfigured);
        isReconfigured = false;
        if (raised != null) {
            answer.put("error", Failures.trace(raised));
            raised = null;
        }
        return answer;
    }

    /** Takes the committed offsets, or why they are not known, for the calls that wait for them. */
    synchronized void answerOffsets(JsonNode request) {
        JsonNode error = request.get("error");
        offsetsError = error == null ? null : error.asText();
        if (error == null) {
            offsets.replace(request.get("offsets"));
        }
        answerCount++;
        notifyAll();
    }

    /** Waits for the offsets that are committed now; those of the start are the present ones during it. */
    private synchronized void refreshOffsets() {
        if (!isStarted) {
            return;
        }
        long before = answerCount;
        long until = System.nanoTime() + OFFSETS_WAIT_MS * 1_000_000;
        wantsOffsets = true;
        notifyAll();
        try {
            while (answerCount == before) {
                long leftMs = (until - System.nanoTime()) / 1_000_000;
                if (leftMs <= 0) {
                    throw new ConnectException("the committed offsets were not received within " + OFFSETS_WAIT_MS + " ms");
                }
                wait(leftMs);
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new ConnectException(interrupted);
        }
        if (offsetsError != null) {
            throw new ConnectException("the committed offsets cannot be read: " + offsetsError);
        }
    }

    void stop() throws Exception {
        plugins.within(loader, () -> {
            connector.stop();
            return null;
        });
    }

    private class Context implements ConnectorContext {
        final String name;

        Context(String name) {
            this.name = name;
        }

        @Override
        public void requestTaskReconfiguration() {
            synchronized (ConnectorRun.this) {
                isReconfigured = true;
                ConnectorRun.this.notifyAll();
            }
        }

        @Override
        public void raiseError(Exception error) {
            synchronized (ConnectorRun.this) {
                raised = error;
                ConnectorRun.this.notifyAll();
            }
        }

        @Override
        public PluginMetrics pluginMetrics() {
            return plugins.metrics.connectorPluginMetrics(name);
        }
    }

    private final class SinkContext extends Context implements SinkConnectorContext {
        SinkContext(String name) {
            super(name);
        }
    }

    private final class SourceContext extends Context implements SourceConnectorContext {
        SourceContext(String name) {
            super(name);
        }

        @Override
        public OffsetStorageReader offsetStorageReader() {
            OffsetStorageReader reader = new OffsetStorageReaderImpl(offsets, name,
                TaskLoops.offsetConverter(true), TaskLoops.offsetConverter(false));
            return new OffsetStorageReader() {
                @Override
                public <T> Map<String, Object> offset(Map<String, T> partition) {
                    refreshOffsets();
                    return reader.offset(partition);
                }

                @Override
                public <T> Map<Map<String, T>, Map<String, Object>> offsets(Collection<Map<String, T>> partitions) {
                    refreshOffsets();
                    return reader.offsets(partitions);
                }
            };
        }
    }
}
