package io.drover.host;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.json.JsonConverter;

/**
 * Kafka's JSON with schemas without its silent changes of numbers: it reads NaN and Infinity as 0, and
 * wraps whole numbers without a schema that do not fit into 64 bits.
 */
final class ExactJson extends JsonConverter {
    /** The shortest run of digits of a number that may not fit into 64 bits. */
    private static final Pattern LONG_NUMBER = Pattern.compile("\\d{19}");

    ExactJson() {
        configure(Map.of("schemas.enable", "true", "replace.null.with.default", "false"), false);
    }

    @Override
    public SchemaAndValue toConnectData(String topic, byte[] bytes) {
        SchemaAndValue found = super.toConnectData(topic, bytes);
        if (found.value() == null) {
            return found;
        }
        String text = new String(bytes, StandardCharsets.ISO_8859_1);
        if (found.schema() == null) {
            if (LONG_NUMBER.matcher(text).find()) {
                checkNumbers(tree(bytes));
            }
            return found;
        }
        boolean isSpecial = text.contains("\"NaN\"") || text.contains("Infinity\"");
        return isSpecial
            ? new SchemaAndValue(found.schema(), exact(found.schema(), tree(bytes).get("payload"), found.value()))
            : found;
    }

    private static JsonNode tree(byte[] bytes) {
        try {
            return Json.MAPPER.readTree(bytes);
        } catch (IOException error) {
            throw new DataException("no JSON", error);
        }
    }

    private static void checkNumbers(JsonNode node) {
        if (node.isBigInteger()) {
            throw new DataException("the number " + node
                + " does not fit into 64 bits, which numbers without a schema have in Java");
        }
        node.forEach(ExactJson::checkNumbers);
    }

    /** The value with the numbers that its JSON has as texts. */
    private static Object exact(Schema schema, JsonNode node, Object value) {
        if (value == null || node == null) {
            return value;
        }
        return switch (schema.type()) {
            case FLOAT32 -> node.isTextual() ? Float.valueOf(node.textValue()) : value;
            case FLOAT64 -> node.isTextual() ? Double.valueOf(node.textValue()) : value;
            case STRUCT -> {
                Struct struct = (Struct) value;
                for (Field each : schema.fields()) {
                    Object part = struct.getWithoutDefault(each.name());
                    struct.put(each, exact(each.schema(), node.get(each.name()), part));
                }
                yield struct;
            }
            case ARRAY -> {
                List<Object> exact = new ArrayList<>();
                for (Object each : (List<?>) value) {
                    exact.add(exact(schema.valueSchema(), node.get(exact.size()), each));
                }
                yield exact;
            }
            case MAP -> map(schema, node, (Map<?, ?>) value);
            default -> value;
        };
    }

    /** Maps with other keys than texts are arrays of pairs. */
    private static Map<Object, Object> map(Schema schema, JsonNode node, Map<?, ?> value) {
        Map<Object, Object> exact = new HashMap<>();
        if (node.isObject()) {
            value.forEach((key, each) -> exact.put(key, exact(schema.valueSchema(), node.get((String) key), each)));
            return exact;
        }
        if (schema.keySchema().type() == Schema.Type.FLOAT32 || schema.keySchema().type() == Schema.Type.FLOAT64
                || !schema.valueSchema().type().isPrimitive()) {
            throw new DataException("NaN and Infinity in a map with keys of type " + schema.keySchema().type());
        }
        for (JsonNode pair : node) {
            value.forEach((key, each) -> {
                if (String.valueOf(key).equals(pair.get(0).asText())) {
                    exact.put(key, exact(schema.valueSchema(), pair.get(1), each));
                }
            });
        }
        return exact;
    }
}
