import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Date;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.HeaderConverter;

/**
 * Runs cases through the converters of Kafka Connect: an array of cases on stdin, an array of their
 * results on stdout. cases.py says what a case is, and what its result.
 */
public final class Corpus {
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final JsonNodeFactory NODES = new JsonNodeFactory(true);
    private static final String TOPIC = "topic";
    private static final JsonConverter SCHEMAS = new JsonConverter();

    public static void main(String[] arguments) throws Exception {
        SCHEMAS.configure(Map.of("schemas.enable", "true"), false);
        ArrayNode results = NODES.arrayNode();
        for (JsonNode each : MAPPER.readTree(System.in)) {
            results.add(result(each));
        }
        System.out.println(MAPPER.writeValueAsString(results));
    }

    private static ObjectNode result(JsonNode each) {
        ObjectNode result = NODES.objectNode();
        try {
            Object converter = Class.forName(each.get("class").asText()).getConstructor().newInstance();
            Map<String, Object> config = new HashMap<>();
            each.get("config").fields().forEachRemaining(
                entry -> config.put(entry.getKey(), entry.getValue().asText()));
            boolean isHeader = each.get("header").asBoolean();
            if (isHeader) {
                config.put("converter.type", "header");
                ((HeaderConverter) converter).configure(config);
            } else {
                ((Converter) converter).configure(config, false);
            }
            if (each.has("bytes")) {
                byte[] bytes = each.get("bytes").isNull()
                    ? null : Base64.getDecoder().decode(each.get("bytes").asText());
                SchemaAndValue read = isHeader
                    ? ((HeaderConverter) converter).toConnectHeader(TOPIC, "header", bytes)
                    : ((Converter) converter).toConnectData(TOPIC, bytes);
                Schema schema = read == null ? null : read.schema();
                Object value = read == null ? null : read.value();
                JsonNode said = NODES.nullNode();
                try {
                    said = schema == null ? said : SCHEMAS.asJsonSchema(schema);
                } catch (RuntimeException error) {
                    said = NODES.textNode("no JSON schema");
                }
                result.set("schema", said);
                result.set("value", neutral(value));
            } else {
                JsonNode said = each.get("schema");
                Schema schema = said.isNull() ? null : SCHEMAS.asConnectSchema(said);
                Object value = build(schema, each.get("value"));
                byte[] written = isHeader
                    ? ((HeaderConverter) converter).fromConnectHeader(TOPIC, "header", schema, value)
                    : ((Converter) converter).fromConnectData(TOPIC, schema, value);
                result.set("bytes", written == null
                    ? NODES.nullNode() : NODES.textNode(Base64.getEncoder().encodeToString(written)));
            }
        } catch (Exception error) {
            result.put("error", error.getClass().getSimpleName());
            result.put("message", String.valueOf(error.getMessage()));
        }
        return result;
    }

    /** A value of a schema from the JSON that the JSON converter would write, with NaN as text. */
    private static Object build(Schema schema, JsonNode node) throws Exception {
        if (node.isNull()) {
            return null;
        }
        if (schema == null) {
            return schemaless(node);
        }
        String name = schema.name() == null ? "" : schema.name();
        switch (schema.type()) {
            case INT8: return (byte) node.intValue();
            case INT16: return (short) node.intValue();
            case INT32:
                if (name.equals(Time.LOGICAL_NAME)) {
                    return new Date(node.intValue());
                }
                return name.equals(org.apache.kafka.connect.data.Date.LOGICAL_NAME)
                    ? new Date(node.intValue() * 86400000L) : (Object) node.intValue();
            case INT64:
                return name.equals(Timestamp.LOGICAL_NAME)
                    ? new Date(node.longValue()) : (Object) node.longValue();
            case FLOAT32:
                return node.isTextual() ? Float.parseFloat(node.asText()) : node.floatValue();
            case FLOAT64:
                return node.isTextual() ? Double.parseDouble(node.asText()) : node.doubleValue();
            case BOOLEAN: return node.booleanValue();
            case STRING: return node.textValue();
            case BYTES:
                return name.equals(Decimal.LOGICAL_NAME)
                    ? new BigDecimal(new BigInteger(node.binaryValue()),
                        Integer.parseInt(schema.parameters().get("scale")))
                    : (Object) ByteBuffer.wrap(node.binaryValue());
            case ARRAY: {
                List<Object> items = new ArrayList<>();
                for (JsonNode each : node) {
                    items.add(build(schema.valueSchema(), each));
                }
                return items;
            }
            case MAP: {
                Map<Object, Object> map = new LinkedHashMap<>();
                if (node.isObject()) {
                    for (Map.Entry<String, JsonNode> each : node.properties()) {
                        map.put(each.getKey(), build(schema.valueSchema(), each.getValue()));
                    }
                } else {
                    for (JsonNode each : node) {
                        map.put(build(schema.keySchema(), each.get(0)),
                            build(schema.valueSchema(), each.get(1)));
                    }
                }
                return map;
            }
            default: {
                Struct struct = new Struct(schema);
                for (Field each : schema.fields()) {
                    if (node.has(each.name())) {
                        struct.put(each, build(each.schema(), node.get(each.name())));
                    }
                }
                return struct;
            }
        }
    }

    private static Object schemaless(JsonNode node) {
        if (node.isObject()) {
            Map<String, Object> map = new LinkedHashMap<>();
            for (Map.Entry<String, JsonNode> each : node.properties()) {
                map.put(each.getKey(), schemaless(each.getValue()));
            }
            return map;
        }
        if (node.isArray()) {
            List<Object> items = new ArrayList<>();
            node.forEach(each -> items.add(schemaless(each)));
            return items;
        }
        if (node.isTextual()) {
            return node.textValue();
        }
        if (node.isBoolean()) {
            return node.booleanValue();
        }
        if (node.isNull()) {
            return null;
        }
        return node.isIntegralNumber() ? (Object) node.longValue() : (Object) node.doubleValue();
    }

    private static JsonNode neutral(Object value) {
        if (value == null) {
            return NODES.nullNode();
        }
        if (value instanceof Struct) {
            ObjectNode fields = NODES.objectNode();
            for (Field each : ((Struct) value).schema().fields()) {
                fields.set(each.name(), neutral(((Struct) value).getWithoutDefault(each.name())));
            }
            return fields;
        }
        if (value instanceof Map) {
            ArrayNode entries = NODES.arrayNode();
            for (Map.Entry<?, ?> each : ((Map<?, ?>) value).entrySet()) {
                entries.add(NODES.arrayNode().add(neutral(each.getKey())).add(neutral(each.getValue())));
            }
            return NODES.objectNode().set("$map", entries);
        }
        if (value instanceof List) {
            ArrayNode items = NODES.arrayNode();
            ((List<?>) value).forEach(each -> items.add(neutral(each)));
            return items;
        }
        if (value instanceof byte[]) {
            return tagged("$bytes", Base64.getEncoder().encodeToString((byte[]) value));
        }
        if (value instanceof ByteBuffer) {
            return tagged("$bytes", Base64.getEncoder().encodeToString(((ByteBuffer) value).array()));
        }
        if (value instanceof BigDecimal) {
            return tagged("$decimal", value.toString());
        }
        if (value instanceof Date) {
            return tagged("$ms", String.valueOf(((Date) value).getTime()));
        }
        if (value instanceof Float || value instanceof Double) {
            return tagged("$float", value.toString());
        }
        if (value instanceof Boolean) {
            return NODES.booleanNode((Boolean) value);
        }
        return value instanceof Number
            ? NODES.numberNode(((Number) value).longValue()) : NODES.textNode(value.toString());
    }

    private static JsonNode tagged(String tag, String text) {
        return NODES.objectNode().put(tag, text);
    }
}
