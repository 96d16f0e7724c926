package io.drover.host;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.ConverterConfig;
import org.apache.kafka.connect.storage.ConverterType;
import org.apache.kafka.connect.storage.HeaderConverter;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/**
 * A transform, predicate or converter of a plugin, for the records of a connector of Drover. Keys,
 * values and headers cross the socket as JSON with schemas. A plugin expects calls of one thread.
 */
final class Step {
    private final Object plugin;
    private final ClassLoader loader;
    private final PluginSet plugins;
    private final ExactJson json = new ExactJson();
    private final SimpleHeaderConverter rawHeaders = new SimpleHeaderConverter();
    /** What the plugin does with its present record. */
    final Phase phase = new Phase();

    Step(PluginSet plugins, ClassLoader loader, JsonNode request) throws Exception {
        this.plugins = plugins;
        this.loader = loader;
        rawHeaders.configure(Map.of());
        plugin = plugins.within(loader, () -> Class.forName(request.get("class").asText(), true, loader)
            .getDeclaredConstructor().newInstance());
        plugins.within(loader, () -> {
            configure(plugin, request.get("kind").asText(), Json.texts(request.get("config")),
                request.get("is_key").asBoolean());
            return null;
        });
    }

    /** Configures a new plugin as Kafka Connect does. */
    static void configure(Object plugin, String kind, Map<String, String> texts, boolean isKey) {
        Map<String, Object> config = new HashMap<>(texts);
        switch (kind) {
            case "transform" -> ((Transformation<?>) plugin).configure(config);
            case "predicate" -> ((Predicate<?>) plugin).configure(config);
            case "header_converter" -> {
                config.put(ConverterConfig.TYPE_CONFIG, ConverterType.HEADER.getName());
                ((HeaderConverter) plugin).configure(config);
            }
            case "converter" -> {
                config.put(ConverterConfig.TYPE_CONFIG, (isKey ? ConverterType.KEY : ConverterType.VALUE).getName());
                ((Converter) plugin).configure(config, isKey);
            }
            default -> throw new IllegalArgumentException("unknown kind " + kind);
        }
    }

    /** Applies the plugin to each record; a failed one has the error. */
    synchronized List<StepRows.Out> apply(String what, List<StepRows.In> records) throws Exception {
        return plugins.within(loader, () -> {
            List<StepRows.Out> made = new ArrayList<>(records.size());
            for (int row = 0; row < records.size(); row++) {
                try {
                    int at = row;
                    StepRows.Out one = phase.in(what, () -> apply(what, at, records.get(at)));
                    if (one != null) {
                        made.add(one);
                    }
                } catch (RetriableException later) {
                    throw later;
                } catch (Exception | LinkageError | StackOverflowError | AssertionError error) {
                    made.add(StepRows.Out.failed(row, Failures.message(error)));
                }
            }
            return made;
        });
    }

    private StepRows.Out apply(String what, int row, StepRows.In in) throws Exception {
        return switch (what) {
            case "transform" -> transform(row, in);
            case "matches" -> StepRows.Out.matching(row, matches(record(in, new IdentityHashMap<>())));
            case "encode" -> StepRows.Out.of(row, encode(in));
            case "decode" -> StepRows.Out.of(row, json(decode(in)));
            default -> throw new IllegalArgumentException("unknown step " + what);
        };
    }

    @SuppressWarnings("unchecked")
    private <R extends ConnectRecord<R>> boolean matches(ConnectRecord<?> record) {
        return ((Predicate<R>) plugin).test((R) record);
    }

    @SuppressWarnings("unchecked")
    private <R extends ConnectRecord<R>> StepRows.Out transform(int row, StepRows.In in) {
        Map<Header, byte[]> raw = new IdentityHashMap<>();
        R made = ((Transformation<R>) plugin).apply((R) record(in, raw));
        if (made == null) {
            return null;
        }
        if (made.topic() == null && in.topic() != null) {
            throw new DataException("the transform returned a record without a topic");
        }
        List<StepRows.HeaderValue> headers = new ArrayList<>();
        for (Header each : made.headers()) {
            boolean isUnchanged = raw.containsKey(each);
            headers.add(new StepRows.HeaderValue(each.key(),
                isUnchanged ? raw.get(each) : envelope(new SchemaAndValue(each.schema(), each.value())), !isUnchanged));
        }
        return new StepRows.Out(row, null, false, made.topic(), made.kafkaPartition(), made.timestamp(),
            json(new SchemaAndValue(made.keySchema(), made.key())),
            json(new SchemaAndValue(made.valueSchema(), made.value())), headers);
    }

    /** The record of a row: of a sink if it has an offset. raw gets the headers that were read from their bytes. */
    private ConnectRecord<?> record(StepRows.In in, Map<Header, byte[]> raw) {
        SchemaAndValue key = read(in.key());
        SchemaAndValue value = read(in.value());
        ConnectHeaders headers = new ConnectHeaders();
        for (StepRows.HeaderValue each : in.headers()) {
            SchemaAndValue found = each.isTyped() ? read(each.value())
                : rawHeaders.toConnectHeader(in.topic(), each.key(), each.value());
            headers.add(each.key(), found);
            if (!each.isTyped()) {
                raw.put(headers.lastWithName(each.key()), each.value());
            }
        }
        if (in.offset() == null) {
            return new SourceRecord(Map.of(), Map.of(), in.topic(), in.partition(), key.schema(), key.value(),
                value.schema(), value.value(), in.timestamp(), headers);
        }
        return new SinkRecord(in.topic(), in.partition(), key.schema(), key.value(), value.schema(), value.value(),
            in.offset(), in.timestamp(),
            in.timestamp() == null ? TimestampType.NO_TIMESTAMP_TYPE : TimestampType.CREATE_TIME, headers);
    }

    private byte[] encode(StepRows.In in) {
        SchemaAndValue found = read(in.value());
        return plugin instanceof HeaderConverter converter && in.headerKey() != null
            ? converter.fromConnectHeader(in.topic(), in.headerKey(), found.schema(), found.value())
            : ((Converter) plugin).fromConnectData(in.topic(), found.schema(), found.value());
    }

    private SchemaAndValue decode(StepRows.In in) {
        SchemaAndValue found = plugin instanceof HeaderConverter converter && in.headerKey() != null
            ? converter.toConnectHeader(in.topic(), in.headerKey(), in.value())
            : ((Converter) plugin).toConnectData(in.topic(), in.value());
        if (found == null) {
            throw new DataException("the converter returned null in place of a schema and a value");
        }
        return found;
    }

    private SchemaAndValue read(byte[] envelope) {
        return json.toConnectData("", envelope);
    }

    /** A key or a value; null is a tombstone, whatever its schema. */
    private byte[] json(SchemaAndValue found) {
        return found.value() == null ? null : envelope(found);
    }

    private byte[] envelope(SchemaAndValue found) {
        return json.fromConnectData("", found.schema(), found.value());
    }

    /** Closes the plugin; its errors end nothing. */
    synchronized void close() throws Exception {
        if (plugin instanceof AutoCloseable closeable) {
            plugins.within(loader, () -> {
                closeable.close();
                return null;
            });
        }
    }
}
