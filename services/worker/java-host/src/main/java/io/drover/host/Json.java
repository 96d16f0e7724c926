package io.drover.host;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.LinkedHashMap;
import java.util.Map;

/** Reads and writes the host's JSON. */
final class Json {
    static final ObjectMapper MAPPER = new ObjectMapper();
    private static final TypeReference<LinkedHashMap<String, String>> TEXTS = new TypeReference<>() {};

    private Json() {}

    static ObjectNode object() {
        return MAPPER.createObjectNode();
    }

    static Map<String, String> texts(JsonNode node) {
        return node == null || node.isNull() ? new LinkedHashMap<>() : MAPPER.convertValue(node, TEXTS);
    }
}
