package org.acme;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.HeaderConverter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/** Steps for tests. */
public final class Steps {
    private Steps() {}

    /** Makes a struct of a text, with a field that is named after the text; some texts fail, end the JVM, or are dropped. */
    public static final class Named<R extends ConnectRecord<R>> implements Transformation<R> {
        private String suffix;

        @Override
        public ConfigDef config() {
            return new ConfigDef().define("suffix", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "The end of the topic");
        }

        @Override
        public void configure(Map<String, ?> config) {
            suffix = String.valueOf(config.get("suffix"));
            if (suffix.contains(" ")) {
                throw new ConfigException("suffix", suffix, "must have no space");
            }
        }

        @Override
        public R apply(R record) {
            if (record.value() == null) {
                return record.newRecord(record.topic(), record.kafkaPartition(), Schema.STRING_SCHEMA, "gone",
                    null, null, record.timestamp());
            }
            String text = String.valueOf(record.value());
            switch (text) {
                case "drop" -> {
                    return null;
                }
                case "bad" -> throw new DataException("a bad text");
                case "deep" -> apply(record);
                case "hang" -> {
                    while (true) {
                        java.util.concurrent.locks.LockSupport.park();
                    }
                }
                case "exit" -> Runtime.getRuntime().halt(7);
                default -> { }
            }
            Schema schema = SchemaBuilder.struct().name("named").field("text", Schema.STRING_SCHEMA)
                .field("f_" + text, Schema.OPTIONAL_INT32_SCHEMA).build();
            Struct value = new Struct(schema).put("text", text).put("f_" + text, text.length());
            R made = record.newRecord(record.topic() + suffix, record.kafkaPartition(), null, null, schema, value,
                record.timestamp());
            made.headers().addInt("length", text.length());
            return made;
        }

        @Override
        public void close() {}
    }

    /** Whether a text starts with an n. */
    public static final class StartsWithN<R extends ConnectRecord<R>> implements Predicate<R> {
        @Override
        public ConfigDef config() {
            return new ConfigDef();
        }

        @Override
        public void configure(Map<String, ?> config) {}

        @Override
        public boolean test(R record) {
            return String.valueOf(record.value()).startsWith("n");
        }

        @Override
        public void close() {}
    }

    /** Texts in brackets; a text without them fails. */
    public static final class Brackets implements Converter, HeaderConverter {
        private String open = "";

        @Override
        public String version() {
            return "1.0";
        }

        @Override
        public ConfigDef config() {
            return new ConfigDef();
        }

        @Override
        public void configure(Map<String, ?> config) {}

        @Override
        public void configure(Map<String, ?> config, boolean isKey) {
            open = String.valueOf(config.get("open"));
        }

        @Override
        public byte[] fromConnectData(String topic, Schema schema, Object value) {
            return value == null ? null : (open + value + "]").getBytes(StandardCharsets.UTF_8);
        }

        @Override
        public SchemaAndValue toConnectData(String topic, byte[] value) {
            String text = new String(value, StandardCharsets.UTF_8);
            if (!text.startsWith(open)) {
                throw new DataException("no bracket before " + text);
            }
            return new SchemaAndValue(Schema.STRING_SCHEMA, text.substring(open.length(), text.length() - 1));
        }

        @Override
        public byte[] fromConnectHeader(String topic, String key, Schema schema, Object value) {
            return fromConnectData(topic, schema, value);
        }

        @Override
        public SchemaAndValue toConnectHeader(String topic, String key, byte[] value) {
            return toConnectData(topic, value);
        }

        @Override
        public void close() {}
    }
}
