package org.acme;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.*;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.metrics.Gauge;
import org.apache.kafka.connect.components.Versioned;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.sink.*;
import org.apache.kafka.connect.source.*;
import org.apache.kafka.connect.transforms.Transformation;
import org.slf4j.LoggerFactory;

/** Plugins that do what Kafka's own test plugins do, as their setting "mode" tells. */
public class Behaviours {
    static final ConfigDef CONFIG = new ConfigDef()
        .define("mode", ConfigDef.Type.STRING, "", ConfigDef.Importance.HIGH, "What it does")
        .define("trace", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "The file of its calls");

    static void note(Map<String, String> settings, String line) {
        try {
            Files.writeString(Path.of(settings.get("trace")), line + "\n",
                StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
    }

    /** Notes whether the thread finds the plugin's classes, as libraries look for them. */
    static void noteLoader(Map<String, String> settings, String mode) {
        if (mode.equals("note loader")) {
            ClassLoader own = Behaviours.class.getClassLoader();
            note(settings, "loader " + (Thread.currentThread().getContextClassLoader() == own));
        }
    }

    static void hang() {
        while (true) {
            try {
                Thread.sleep(1_000_000);
            } catch (InterruptedException ignored) {
                // as a plugin that does not react
            }
        }
    }

    static void misbehave(String mode, String phase) {
        if (mode.equals("hang in " + phase)) {
            hang();
        } else if (mode.equals("exit in " + phase)) {
            System.out.println("the plugin ends in " + phase);
            System.exit(7);
        } else if (mode.equals("fail in " + phase)) {
            throw new IllegalStateException("no luck in " + phase);
        } else if (mode.equals("fill in " + phase)) {
            List<byte[]> kept = new ArrayList<>();
            while (true) {
                kept.add(new byte[1 << 20]);
            }
        }
    }

    public static class Source extends SourceConnector {
        private Map<String, String> settings;

        public String version() {
            return "2.5";
        }

        public ConfigDef config() {
            return CONFIG;
        }

        public void start(Map<String, String> given) {
            settings = given;
            misbehave(given.get("mode"), "connector start");
            if (given.get("mode").equals("wait in connector start")) {
                while (!Files.exists(Path.of(given.get("door")))) {
                    LockSupport.parkNanos(10_000_000);
                }
            }
            noteOffset("start");
            if (given.get("mode").equals("reconfigure")) {
                context().requestTaskReconfiguration();
            } else if (given.get("mode").equals("raise")) {
                context().raiseError(new IllegalStateException("the system has gone"));
            }
        }

        public void stop() {
            misbehave(settings.get("mode"), "connector stop");
            note(settings, "connector stop");
        }

        public Class<? extends Task> taskClass() {
            return Numbers.class;
        }

        public List<Map<String, String>> taskConfigs(int count) {
            misbehave(settings.get("mode"), "task configs");
            noteOffset("task configs");
            if (settings.get("mode").equals("other task config")) {
                Map<String, String> own = new HashMap<>(settings);
                own.put("tables", "");
                own.put("none", null);
                own.remove("secret");
                return List.of(own);
            }
            return List.of(settings);
        }

        private void noteOffset(String when) {
            if (settings.get("mode").equals("read offsets")) {
                note(settings, when + " " + context().offsetStorageReader().offset(Map.of("n", 1)));
            }
        }

        public boolean alterOffsets(Map<String, String> config, Map<Map<String, ?>, Map<String, ?>> offsets) {
            note(config, "alter " + offsets);
            return true;
        }
    }

    /** A transform that does not return. */
    public static class Endless<R extends ConnectRecord<R>> implements Transformation<R> {
        public ConfigDef config() {
            return new ConfigDef();
        }

        public void configure(Map<String, ?> config) {}

        public R apply(R record) {
            hang();
            return record;
        }

        public void close() {}
    }

    /** A transform that changes nothing, and notes that it is closed. */
    public static class Closing<R extends ConnectRecord<R>> implements Transformation<R>, Versioned {
        private Map<String, String> settings;

        public String version() {
            return "1.0";
        }

        public ConfigDef config() {
            return new ConfigDef()
                .define("trace", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "The file of its calls")
                .define("code", ConfigDef.Type.PASSWORD, "", ConfigDef.Importance.LOW, "A secret");
        }

        public void configure(Map<String, ?> config) {
            if ("refused".equals(config.get("code"))) {
                throw new ConfigException("no luck in configure");
            }
            settings = Map.of("trace", String.valueOf(config.get("trace")));
        }

        public R apply(R record) {
            return record;
        }

        public void close() {
            if (settings != null) {
                note(settings, "closed");
            }
        }
    }

    /** Chooses the class of its tasks when it starts. */
    public static class Chooser extends Source {
        private Class<? extends Task> chosen;

        public void start(Map<String, String> given) {
            super.start(given);
            chosen = given.get("mode").equals("lean") ? NumbersWithoutCommit.class : Numbers.class;
        }

        public Class<? extends Task> taskClass() {
            return Objects.requireNonNull(chosen, "it has not started");
        }
    }

    /** A library that need not be there. */
    public static class Library {}

    /** Its task can use a library. */
    public static class WithLibrary extends Source {
        public Class<? extends Task> taskClass() {
            return NumbersWithLibrary.class;
        }
    }

    public static class NumbersWithLibrary extends NumbersWithoutCommit {
        public void use(Library library) {}

        public void commit() {
            note(settings, "commit");
        }
    }

    /** Its tasks hang in their constructor. */
    public static class Stuck extends Source {
        public Class<? extends Task> taskClass() {
            return StuckTask.class;
        }
    }

    public static class StuckTask extends Numbers {
        public StuckTask() {
            hang();
        }
    }

    /** Its task has no commit(), before which Drover stores all records. */
    public static class Lean extends Source {
        public Class<? extends Task> taskClass() {
            return NumbersWithoutCommit.class;
        }
    }

    /** Consecutive numbers, ten in each poll, up to 100. */
    public static class NumbersWithoutCommit extends SourceTask {
        Map<String, String> settings;
        String mode;
        private long next;
        private int polls;

        public String version() {
            return "2.5";
        }

        public void start(Map<String, String> given) {
            settings = given;
            mode = given.get("mode");
            misbehave(mode, "start");
            noteLoader(given, mode);
            if (mode.equals("measure")) {
                measure();
            }
            if (mode.equals("note environment")) {
                note(given, "variable " + System.getenv("ACME_ROLE") + " " + System.getenv("ACME_SECRET"));
                note(given, "property " + System.getProperty("acme.store"));
            }
            if (mode.equals("log an error")) {
                LoggerFactory.getLogger("org.acme.Numbers").error("x".repeat(3_000));
                LoggerFactory.getLogger("org.acme.Numbers").error("it failed",
                    new IllegalStateException("outer", new IOException("the disk is slow")));
            }
            if (mode.equals("other task config")) {
                Map<String, String> seen = new TreeMap<>(given);
                seen.keySet().retainAll(Set.of("tables", "none", "secret"));
                note(given, "settings " + seen);
            }
            Map<String, Object> offset = context.offsetStorageReader().offset(Map.of("n", 1));
            next = offset == null ? 0 : (Long) offset.get("next");
            note(given, "start " + next);
        }

        private void measure() {
            var metrics = context.pluginMetrics();
            Map<String, Gauge<?>> gauges = Map.of(
                "records-made", (config, now) -> next,
                "fill-percent", (config, now) -> 12.6,
                "no-number", (config, now) -> Double.NaN,
                "text", (config, now) -> "a text",
                "broken", (config, now) -> {
                    throw new IllegalStateException("no luck");
                });
            gauges.forEach((name, gauge) ->
                metrics.addMetric(metrics.metricName(name, "A metric", new LinkedHashMap<>()), gauge));
        }

        public List<SourceRecord> poll() throws InterruptedException {
            misbehave(mode, "poll");
            if (mode.equals("log")) {
                polls++;
                LoggerFactory.getLogger("org.acme.Numbers").debug("logged poll {}.", polls);
                System.out.println("printed poll " + polls + ".");
                Thread.sleep(20);
                return null;
            }
            if (mode.equals("block") && next == 10) {
                Thread.sleep(2_100); // then a commit() is due, and none after the next records
            }
            if (mode.equals("block") && next == 30) {
                try {
                    new CountDownLatch(1).await();
                } catch (InterruptedException error) {
                    note(settings, "interrupted");
                    throw error;
                }
            }
            if (mode.equals("circular error")) {
                RuntimeException first = new IllegalStateException("no luck");
                RuntimeException second = new IllegalStateException("none at all", first);
                first.initCause(second);
                throw first;
            }
            if (next >= 100 && !mode.equals("endless")) {
                Thread.sleep(20);
                return null;
            }
            if (mode.equals("large")) {
                String text = "x".repeat(Integer.parseInt(settings.get("size")));
                next = 100;
                return List.of(new SourceRecord(Map.of("n", 1), Map.of("next", next), "numbers",
                    Schema.STRING_SCHEMA, "k", Schema.STRING_SCHEMA, text));
            }
            if (mode.equals("no positions")) {
                next = 100;
                return List.of(
                    new SourceRecord(null, null, "numbers", Schema.STRING_SCHEMA, "a", null, null),
                    new SourceRecord(null, Map.of("at", 1), "numbers", Schema.STRING_SCHEMA, "b", null, null),
                    new SourceRecord(Map.of(), Map.of(), "numbers", Schema.STRING_SCHEMA, "c", null, null));
            }
            List<SourceRecord> records = new ArrayList<>();
            for (int n = 0; n < 10; n++) {
                long value = next++;
                records.add(new SourceRecord(Map.of("n", 1), Map.of("next", next), "numbers",
                    Schema.STRING_SCHEMA, "k" + value, Schema.OPTIONAL_STRING_SCHEMA,
                    value % 10 == 9 ? null : "v" + value));
            }
            note(settings, "poll " + next);
            if (context.transactionContext() != null) {
                if (next % 50 == 0) {
                    context.transactionContext().commitTransaction();
                }
            }
            return records;
        }

        public void commitRecord(SourceRecord record, RecordMetadata metadata) {
            misbehave(mode, "commitRecord");
            note(settings, "ack " + record.key() + " " + metadata.topic() + "-" + metadata.partition()
                + "@" + metadata.offset());
        }

        public void stop() {
            misbehave(mode, "stop");
        }
    }

    public static class Numbers extends NumbersWithoutCommit {
        public void commit() {
            misbehave(mode, "commit");
            note(settings, "commit");
        }
    }

    public static class Sink extends SinkConnector {
        private Map<String, String> settings;

        public String version() {
            return "2.5";
        }

        public ConfigDef config() {
            return CONFIG;
        }

        public void start(Map<String, String> given) {
            settings = given;
        }

        public void stop() {}

        public Class<? extends Task> taskClass() {
            return Keeper.class;
        }

        public List<Map<String, String>> taskConfigs(int count) {
            return Collections.nCopies(count, settings);
        }
    }

    /** Writes what it gets into its file. */
    public static class Keeper extends SinkTask {
        private Map<String, String> settings;
        private String mode;
        private int puts;
        private boolean once;
        private final List<SinkRecord> buffer = new ArrayList<>();

        public String version() {
            return "2.5";
        }

        public void start(Map<String, String> given) {
            settings = given;
            mode = given.get("mode");
            misbehave(mode, "start");
            noteLoader(given, mode);
            note(given, "start");
        }

        public void open(Collection<TopicPartition> partitions) {
            misbehave(mode, "open");
            note(settings, "open " + partitions);
            if (mode.equals("seek")) {
                partitions.forEach(each -> context.offset(each, Long.parseLong(settings.get("target"))));
            }
        }

        public void put(Collection<SinkRecord> records) {
            misbehave(mode, "put");
            if (records.isEmpty()) {
                if (mode.equals("note empty puts")) {
                    note(settings, "empty put " + context.assignment().size());
                }
                return;
            }
            puts++;
            if (mode.equals("retry") && puts <= 2) {
                context.timeout(10);
                note(settings, "retry");
                throw new RetriableException("busy");
            }
            for (SinkRecord each : records) {
                TopicPartition partition = new TopicPartition(each.topic(), each.kafkaPartition());
                if (mode.equals("errant") && each.kafkaOffset() % 3 == 0) {
                    context.errantRecordReporter().report(each, new IllegalStateException("bad number"));
                    continue;
                }
                if (mode.equals("errant of another topic")) {
                    context.errantRecordReporter().report(new SinkRecord("elsewhere", 0, null, null, null,
                        each.value(), each.kafkaOffset(), each.timestamp(), each.timestampType()), new IllegalStateException("bad number"));
                }
                if (mode.equals("topics")) {
                    note(settings, "topic " + each.topic() + " of " + each.originalTopic());
                }
                if (mode.equals("large")) {
                    note(settings, "large " + String.valueOf(each.value()).length());
                    continue;
                }
                if (mode.equals("rewind") && each.kafkaOffset() == 5 && !once) {
                    once = true;
                    context.offset(partition, 2);
                    note(settings, "rewind");
                    return;
                }
                if (mode.equals("pause") && !once) {
                    once = true;
                    context.pause(partition);
                    note(settings, "pause");
                }
                note(settings, "put " + each.kafkaOffset() + " " + each.key() + " " + each.value());
                buffer.add(each);
            }
            if (mode.equals("request")) {
                context.requestCommit();
            }
        }

        public Map<TopicPartition, OffsetAndMetadata> preCommit(Map<TopicPartition, OffsetAndMetadata> offsets) {
            misbehave(mode, "preCommit");
            if (mode.equals("never")) {
                return Map.of();
            }
            if (mode.equals("null")) {
                return null;
            }
            if (mode.equals("lower")) {
                Map<TopicPartition, OffsetAndMetadata> found = new HashMap<>();
                offsets.forEach((key, at) -> found.put(key, new OffsetAndMetadata(Math.max(0, at.offset() - 2))));
                return found;
            }
            if (mode.equals("foreign")) {
                Map<TopicPartition, OffsetAndMetadata> found = new HashMap<>(offsets);
                found.put(new TopicPartition("elsewhere", 7), new OffsetAndMetadata(9));
                return found;
            }
            return super.preCommit(offsets);
        }

        public void flush(Map<TopicPartition, OffsetAndMetadata> offsets) {}

        public void stop() {
            note(settings, "stop");
            misbehave(mode, "stop");
        }
    }
}
