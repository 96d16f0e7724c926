import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.text.SimpleDateFormat;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Date;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TimeZone;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.ConnectSchema;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/**
 * Answers cases, one JSON object a line, with what Kafka Connect's transforms and predicates (or a
 * function of the JVM, see {@link #ask}) make of them. The form of the lines is told in cases.py.
 */
public final class TransformCorpus {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final JsonNodeFactory NODES = new JsonNodeFactory(true);
    private static final JsonConverter SCHEMAS = new JsonConverter();
    private static final long DAY_MS = 86_400_000L;

    public static void main(String[] arguments) throws Exception {
        TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
        SCHEMAS.configure(Map.of("schemas.enable", "true"), false);
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
        out.flush();
    }

    private static ObjectNode answer(JsonNode line) throws Exception {
        return line.has("ask") ? ask(line) : run(line);
    }

    // transforms and predicates

    private static ObjectNode run(JsonNode line) throws Exception {
        Map<String, String> config = new HashMap<>();
        line.get("config").fields().forEachRemaining(
                each -> config.put(each.getKey(), each.getValue().textValue()));
        Object step = Class.forName(line.get("class").textValue())
                .getDeclaredConstructor().newInstance();
        ConnectRecord<?> record = readRecord(line.get("record"));
        String[] stage = {"configure"};
        try {
            return record instanceof SinkRecord
                    ? apply(step, config, (SinkRecord) record, stage)
                    : apply(step, config, (SourceRecord) record, stage);
        } catch (Exception error) {
            ObjectNode told = NODES.objectNode();
            told.put("at", stage[0]);
            told.put("class", error.getClass().getName());
            // without the addresses of objects, which differ from run to run
            told.put("message",
                    String.valueOf(error.getMessage()).replaceAll("@[0-9a-f]{4,8}\\b", "@0"));
            return NODES.objectNode().set("error", told);
        }
    }

    @SuppressWarnings("unchecked")
    private static <R extends ConnectRecord<R>> ObjectNode apply(
            Object step, Map<String, String> config, R record, String[] stage) {
        if (step instanceof Predicate) {
            Predicate<R> predicate = (Predicate<R>) step;
            predicate.configure(config);
            stage[0] = "apply";
            return NODES.objectNode().put("matches", predicate.test(record));
        }
        Transformation<R> transform = (Transformation<R>) step;
        transform.configure(config);
        stage[0] = "apply";
        R changed = transform.apply(record);
        return NODES.objectNode().set(
                "expected", changed == null ? NODES.nullNode() : writeRecord(changed));
    }

    private static ConnectRecord<?> readRecord(JsonNode node) {
        ConnectHeaders headers = new ConnectHeaders();
        for (JsonNode each : node.get("headers")) {
            SchemaAndValue header = readSide(each.get(1), each.get(2));
            headers.add(each.get(0).textValue(), header.value(), header.schema());
        }
        SchemaAndValue key = readSide(node.get("key").get("schema"), node.get("key").get("payload"));
        SchemaAndValue value =
                readSide(node.get("value").get("schema"), node.get("value").get("payload"));
        String topic = node.get("topic").textValue();
        Integer partition = node.get("partition").isNull() ? null : node.get("partition").intValue();
        Long at = node.get("timestamp").isNull() ? null : node.get("timestamp").longValue();
        if (node.get("offset").isNull()) {
            return new SourceRecord(null, null, topic, partition, key.schema(), key.value(),
                    value.schema(), value.value(), at, headers);
        }
        return new SinkRecord(topic, partition == null ? 0 : partition, key.schema(), key.value(),
                value.schema(), value.value(), node.get("offset").longValue(), at,
                TimestampType.CREATE_TIME, headers);
    }

    private static ObjectNode writeRecord(ConnectRecord<?> record) {
        ObjectNode node = NODES.objectNode();
        node.put("topic", record.topic());
        node.put("partition", record.kafkaPartition());
        node.put("offset",
                record instanceof SinkRecord ? (Long) ((SinkRecord) record).kafkaOffset() : null);
        node.put("timestamp", record.timestamp());
        node.set("key", writeSide(record.keySchema(), record.key()));
        node.set("value", writeSide(record.valueSchema(), record.value()));
        ArrayNode headers = node.putArray("headers");
        for (Header each : record.headers()) {
            ArrayNode header = headers.addArray().add(each.key());
            header.add(writeSchema(each.schema())).add(write(each.schema(), each.value()));
        }
        return node;
    }

    private static SchemaAndValue readSide(JsonNode schemaNode, JsonNode payload) {
        Schema schema = schemaNode.isNull() ? null : SCHEMAS.asConnectSchema(schemaNode);
        return new SchemaAndValue(schema, schema == null ? readPlain(payload) : read(schema, payload));
    }

    private static ObjectNode writeSide(Schema schema, Object value) {
        ObjectNode node = NODES.objectNode();
        node.set("schema", writeSchema(schema));
        node.set("payload", write(schema, value));
        return node;
    }

    private static JsonNode writeSchema(Schema schema) {
        return schema == null ? NODES.nullNode() : SCHEMAS.asJsonSchema(schema);
    }

    private static Object read(Schema schema, JsonNode node) {
        if (node == null || node.isNull()) {
            return null;
        }
        switch (String.valueOf(schema.name())) {
            case Decimal.LOGICAL_NAME: return new BigDecimal(node.textValue());
            case org.apache.kafka.connect.data.Date.LOGICAL_NAME:
                return new Date(node.longValue() * DAY_MS);
            case Time.LOGICAL_NAME: case Timestamp.LOGICAL_NAME: return new Date(node.longValue());
            default:
        }
        switch (schema.type()) {
            case INT8: return (byte) node.intValue();
            case INT16: return (short) node.intValue();
            case INT32: return node.intValue();
            case INT64: return node.longValue();
            case FLOAT32: return Float.valueOf(node.asText());
            case FLOAT64: return Double.valueOf(node.asText());
            case BOOLEAN: return node.booleanValue();
            case STRING: return node.textValue();
            case BYTES: return Base64.getDecoder().decode(node.textValue());
            case ARRAY:
                List<Object> items = new ArrayList<>();
                node.forEach(each -> items.add(read(schema.valueSchema(), each)));
                return items;
            case MAP:
                Map<Object, Object> map = new LinkedHashMap<>();
                node.forEach(each -> map.put(read(schema.keySchema(), each.get(0)),
                        read(schema.valueSchema(), each.get(1))));
                return map;
            default:
                Struct struct = new Struct(schema);
                for (Field field : schema.fields()) {
                    struct.put(field, read(field.schema(), node.get(field.name())));
                }
                return struct;
        }
    }

    private static JsonNode write(Schema schema, Object value) {
        if (value == null) {
            return NODES.nullNode();
        }
        if (schema == null) {
            return writePlain(value);
        }
        if (!fits(schema, value)) {
            return NODES.objectNode().set("@other", writePlain(value));
        }
        if (value instanceof BigDecimal) {
            return NODES.textNode(value.toString());
        }
        if (value instanceof Date) {
            long ms = ((Date) value).getTime();
            boolean days = org.apache.kafka.connect.data.Date.LOGICAL_NAME.equals(schema.name());
            return NODES.numberNode(days ? Math.floorDiv(ms, DAY_MS) : ms);
        }
        if (value instanceof Float || value instanceof Double) {
            double number = ((Number) value).doubleValue();
            return Double.isNaN(number) || Double.isInfinite(number)
                    ? NODES.textNode(value.toString())
                    : NODES.numberNode(new BigDecimal(value.toString()));
        }
        if (value instanceof Number) {
            return NODES.numberNode(((Number) value).longValue());
        }
        if (value instanceof List) {
            ArrayNode items = NODES.arrayNode();
            ((List<?>) value).forEach(each -> items.add(write(schema.valueSchema(), each)));
            return items;
        }
        if (value instanceof Map) {
            ArrayNode pairs = NODES.arrayNode();
            ((Map<?, ?>) value).forEach((key, item) -> pairs.addArray()
                    .add(write(schema.keySchema(), key)).add(write(schema.valueSchema(), item)));
            return pairs;
        }
        if (value instanceof Struct) {
            ObjectNode node = NODES.objectNode();
            for (Field field : ((Struct) value).schema().fields()) {
                Object item = ((Struct) value).getWithoutDefault(field.name());
                node.set(field.name(), write(field.schema(), item));
            }
            return node;
        }
        return writePlain(value instanceof byte[] || value instanceof ByteBuffer
                ? Base64.getEncoder().encodeToString(bytes(value)) : value);
    }

    private static boolean fits(Schema schema, Object value) {
        try {
            ConnectSchema.validateValue(schema, value);
            return true;
        } catch (Exception error) {
            return false;
        }
    }

    private static byte[] bytes(Object value) {
        return value instanceof byte[] ? (byte[]) value : ((ByteBuffer) value).array();
    }

    private static Object readPlain(JsonNode node) {
        if (node.isNull()) {
            return null;
        } else if (node.isBoolean()) {
            return node.booleanValue();
        } else if (node.isIntegralNumber()) {
            return node.longValue();
        } else if (node.isNumber()) {
            return node.doubleValue();
        } else if (node.isTextual()) {
            return node.textValue();
        } else if (node.isArray()) {
            List<Object> items = new ArrayList<>();
            node.forEach(each -> items.add(readPlain(each)));
            return items;
        }
        String tag = node.size() == 1 ? node.fieldNames().next() : "";
        JsonNode tagged = node.get(tag);
        switch (tag) {
            case "@byte": return (byte) tagged.intValue();
            case "@short": return (short) tagged.intValue();
            case "@int": return tagged.intValue();
            case "@float": return Float.valueOf(tagged.asText());
            case "@double": return Double.valueOf(tagged.asText());
            case "@decimal": return new BigDecimal(tagged.textValue());
            case "@date": return new Date(tagged.longValue());
            case "@bytes": return Base64.getDecoder().decode(tagged.textValue());
            default:
                Map<String, Object> map = new LinkedHashMap<>();
                node.fields().forEachRemaining(
                        each -> map.put(each.getKey(), readPlain(each.getValue())));
                return map;
        }
    }

    private static JsonNode writePlain(Object value) {
        if (value == null) {
            return NODES.nullNode();
        } else if (value instanceof Boolean) {
            return NODES.booleanNode((Boolean) value);
        } else if (value instanceof String) {
            return NODES.textNode((String) value);
        } else if (value instanceof Long) {
            return NODES.numberNode((Long) value);
        } else if (value instanceof List) {
            ArrayNode items = NODES.arrayNode();
            ((List<?>) value).forEach(each -> items.add(writePlain(each)));
            return items;
        } else if (value instanceof Map) {
            ObjectNode node = NODES.objectNode();
            ((Map<?, ?>) value).forEach((key, item) -> node.set(key.toString(), writePlain(item)));
            return node;
        } else if (value instanceof Double && !((Double) value).isNaN()
                && !((Double) value).isInfinite()) {
            return NODES.numberNode((Double) value);
        }
        ObjectNode node = NODES.objectNode();
        if (value instanceof Byte) {
            return node.put("@byte", (Byte) value);
        } else if (value instanceof Short) {
            return node.put("@short", (Short) value);
        } else if (value instanceof Integer) {
            return node.put("@int", (Integer) value);
        } else if (value instanceof Float) {
            return node.put("@float", value.toString());
        } else if (value instanceof Double) {
            return node.put("@double", value.toString());
        } else if (value instanceof BigDecimal) {
            return node.put("@decimal", value.toString());
        } else if (value instanceof Date) {
            return node.put("@date", ((Date) value).getTime());
        } else if (value instanceof byte[] || value instanceof ByteBuffer) {
            return node.put("@bytes", Base64.getEncoder().encodeToString(bytes(value)));
        }
        return node.put("@" + value.getClass().getName(), value.toString());
    }

    // functions of the JVM

    /** {"ask": name, "of": [arguments]} as {"answer": text or number}, or {"error": class}. */
    private static ObjectNode ask(JsonNode line) {
        JsonNode of = line.get("of");
        String first = of.get(0).asText();
        ObjectNode node = NODES.objectNode();
        try {
            switch (line.get("ask").textValue()) {
                case "Double.toString": return node.put("answer", Double.valueOf(first).toString());
                case "Float.toString": return node.put("answer", Float.valueOf(first).toString());
                case "Double.parseDouble":
                    return node.put("answer", String.valueOf(Double.parseDouble(first)));
                case "Float.parseFloat":
                    return node.put("answer", String.valueOf(Float.parseFloat(first)));
                case "Byte.parseByte": return node.put("answer", (int) Byte.parseByte(first));
                case "Short.parseShort": return node.put("answer", (int) Short.parseShort(first));
                case "Integer.parseInt": return node.put("answer", Integer.parseInt(first));
                case "Long.parseLong": return node.put("answer", Long.parseLong(first));
                case "Double.byteValue":
                    return node.put("answer", (int) Double.valueOf(first).byteValue());
                case "Double.shortValue":
                    return node.put("answer", (int) Double.valueOf(first).shortValue());
                case "Double.intValue": return node.put("answer", Double.valueOf(first).intValue());
                case "Double.longValue": return node.put("answer", Double.valueOf(first).longValue());
                case "BigDecimal.toString":
                    return node.put("answer", new BigDecimal(first).toString());
                case "SimpleDateFormat.format":
                    return node.put("answer", format(first).format(new Date(of.get(1).longValue())));
                case "SimpleDateFormat.parse":
                    return node.put("answer", format(first).parse(of.get(1).textValue()).getTime());
                case "String.replaceFirst": {
                    Matcher matcher = Pattern.compile(first).matcher(of.get(2).textValue());
                    String changed =
                            matcher.matches() ? matcher.replaceFirst(of.get(1).textValue()) : null;
                    return node.put("answer", changed);
                }
                default: throw new IllegalArgumentException("no such function: " + line);
            }
        } catch (Exception error) {
            return node.put("error", error.getClass().getName());
        }
    }

    private static SimpleDateFormat format(String pattern) {
        SimpleDateFormat format = new SimpleDateFormat(pattern);
        format.setTimeZone(TimeZone.getTimeZone("UTC"));
        return format;
    }
}
