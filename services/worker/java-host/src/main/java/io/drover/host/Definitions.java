package io.drover.host;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.Config;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.connect.connector.Connector;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.source.ConnectorTransactionBoundaries;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;

/** The settings of plugins, their validation, and changes of a connector's offsets. */
final class Definitions {
    private Definitions() {}

    /** The settings of a connector. */
    static ObjectNode connector(PluginSet plugins, Map<String, String> config) throws Exception {
        Connector connector = plugins.newConnector(config);
        ClassLoader loader = plugins.loader(config.get("connector.class"), PluginSet.range(config));
        ObjectNode answer = Json.object();
        answer.put("version", plugins.within(loader, connector::version));
        keys(plugins.within(loader, connector::config), answer.putArray("keys"));
        return answer;
    }

    /** The settings of any class with a method config(). */
    static ObjectNode plugin(PluginSet plugins, String name) throws Exception {
        Object found = plugins.plugins().newPlugin(name, null);
        ClassLoader loader = found.getClass().getClassLoader();
        ObjectNode answer = Json.object();
        ConfigDef definition = plugins.within(loader, () -> (ConfigDef) found.getClass().getMethod("config").invoke(found));
        keys(definition, answer.putArray("keys"));
        return answer;
    }

    private static void keys(ConfigDef definition, ArrayNode keys) {
        if (definition == null) {
            return;
        }
        for (ConfigDef.ConfigKey each : definition.configKeys().values()) {
            ObjectNode key = keys.addObject();
            key.put("name", each.name);
            key.put("type", each.type.name());
            key.put("required", !each.hasDefault());
            key.put("default", each.hasDefault() && each.defaultValue != null
                ? ConfigDef.convertToString(each.defaultValue, each.type) : null);
            key.put("importance", each.importance.name());
            key.put("documentation", each.documentation);
            key.put("group", each.group);
            key.put("width", each.width == null ? "NONE" : each.width.name());
            key.put("display_name", each.displayName);
            key.put("internal", each.internalConfig);
            ArrayNode dependents = key.putArray("dependents");
            each.dependents.forEach(dependents::add);
        }
    }

    /** A connector's own validation of a config. */
    static ObjectNode validate(PluginSet plugins, Map<String, String> config) throws Exception {
        Connector connector = plugins.newConnector(config);
        ClassLoader loader = plugins.loader(config.get("connector.class"), PluginSet.range(config));
        ObjectNode answer = Json.object();
        ArrayNode values = answer.putArray("values");
        Config found = plugins.within(loader, () -> connector.validate(config));
        for (ConfigValue each : found.configValues()) {
            ObjectNode value = values.addObject();
            value.put("name", each.name());
            value.put("visible", each.visible());
            ArrayNode errors = value.putArray("errors");
            each.errorMessages().forEach(errors::add);
            ArrayNode recommended = value.putArray("recommended");
            each.recommendedValues().forEach(one -> recommended.add(String.valueOf(one)));
        }
        if (connector instanceof SourceConnector source) {
            ExactlyOnceSupport once = plugins.within(loader, () -> source.exactlyOnceSupport(config));
            answer.put("exactly_once", once == ExactlyOnceSupport.SUPPORTED);
            ConnectorTransactionBoundaries own =
                plugins.within(loader, () -> source.canDefineTransactionBoundaries(config));
            answer.put("own_transactions", own == ConnectorTransactionBoundaries.SUPPORTED);
        }
        return answer;
    }

    /** Asks a connector about a change of its offsets (KIP-875). */
    @SuppressWarnings("unchecked")
    static ObjectNode alterOffsets(PluginSet plugins, Map<String, String> config, JsonNode changes) throws Exception {
        Connector connector = plugins.newConnector(config);
        ClassLoader loader = plugins.loader(config.get("connector.class"), PluginSet.range(config));
        ObjectNode answer = Json.object();
        boolean isMatching;
        if (connector instanceof SinkConnector sink) {
            Map<TopicPartition, Long> offsets = new HashMap<>();
            changes.forEach(each -> offsets.put(
                new TopicPartition(each.get(0).get("kafka_topic").asText(), each.get(0).get("kafka_partition").asInt()),
                each.get(1).isNull() ? null : each.get(1).get("kafka_offset").asLong()));
            isMatching = plugins.within(loader, () -> sink.alterOffsets(config, offsets));
        } else {
            Map<Map<String, ?>, Map<String, ?>> offsets = new HashMap<>();
            changes.forEach(each -> offsets.put(map(each.get(0)), each.get(1).isNull() ? null : map(each.get(1))));
            isMatching = plugins.within(loader, () -> ((SourceConnector) connector).alterOffsets(config, offsets));
        }
        answer.put("matches", isMatching);
        return answer;
    }

    /** An offset as Connect's JsonConverter reads it: whole numbers are of type Long. */
    @SuppressWarnings("unchecked")
    private static Map<String, Object> map(JsonNode node) {
        try {
            return (Map<String, Object>) org.apache.kafka.connect.runtime.TaskLoops.offsetConverter(false)
                .toConnectData("", Json.MAPPER.writeValueAsBytes(node)).value();
        } catch (com.fasterxml.jackson.core.JsonProcessingException error) {
            throw new IllegalArgumentException(error);
        }
    }
}
