package io.drover.host;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.PluginMetrics;
import org.apache.kafka.connect.connector.Connector;
import org.apache.kafka.connect.connector.ConnectorContext;
import org.apache.kafka.connect.runtime.TaskLoops;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkConnectorContext;
import org.apache.kafka.connect.source.SourceConnectorContext;
import org.apache.kafka.connect.storage.OffsetStorageReader;
import org.apache.kafka.connect.storage.OffsetStorageReaderImpl;

/** A plugin's connector, which splits its work into tasks. */
final class ConnectorRun {
    private final PluginSet plugins;
    private final Connector connector;
    private final ClassLoader loader;
    private boolean isReconfigured;
    private Throwable raised;

    ConnectorRun(PluginSet plugins, JsonNode request) throws Exception {
        this.plugins = plugins;
        Map<String, String> config = Json.texts(request.get("config"));
        connector = plugins.newConnector(config);
        loader = plugins.loader(config.get("connector.class"), PluginSet.range(config));
        String name = request.get("connector").asText();
        OffsetStore offsets = new OffsetStore(request.get("offsets"), written -> {});
        plugins.within(loader, () -> {
            connector.initialize(connector instanceof SinkConnector ? new SinkContext(name) : new SourceContext(name, offsets));
            connector.start(config);
            return null;
        });
    }

    ObjectNode taskConfigs(int max) throws Exception {
        List<Map<String, String>> found = plugins.within(loader, () -> connector.taskConfigs(max));
        ObjectNode answer = Json.object();
        ArrayNode configs = answer.putArray("configs");
        if (found != null) {
            found.forEach(each -> configs.add(Json.MAPPER.valueToTree(each)));
        }
        return answer;
    }

    /** Waits until the connector requests new task configs or raises an error. */
    synchronized ObjectNode events(long waitMs) throws InterruptedException {
        if (!isReconfigured && raised == null) {
            wait(waitMs);
        }
        ObjectNode answer = Json.object();
        answer.put("reconfigure", isReconfigured);
        isReconfigured = false;
        if (raised != null) {
            answer.put("error", Failures.trace(raised));
            raised = null;
        }
        return answer;
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
        private final OffsetStore offsets;

        SourceContext(String name, OffsetStore offsets) {
            super(name);
            this.offsets = offsets;
        }

        @Override
        public OffsetStorageReader offsetStorageReader() {
            return new OffsetStorageReaderImpl(offsets, name, TaskLoops.offsetConverter(true), TaskLoops.offsetConverter(false));
        }
    }
}
