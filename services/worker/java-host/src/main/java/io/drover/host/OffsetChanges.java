package io.drover.host;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.connector.Connector;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.source.SourceConnector;

/** Changes of a connector's offsets by an operator. */
final class OffsetChanges {
    private OffsetChanges() {}

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
