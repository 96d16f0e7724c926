package org.apache.kafka.connect.runtime;

import io.drover.host.GapRecord;
import io.drover.host.RoutedRecord;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Executor;
import java.util.function.Function;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.connect.connector.Connector;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.runtime.errors.ErrorHandlingMetrics;
import org.apache.kafka.connect.runtime.errors.ErrorReporter;
import org.apache.kafka.connect.runtime.errors.Operation;
import org.apache.kafka.connect.runtime.errors.ProcessingContext;
import org.apache.kafka.connect.runtime.errors.RetryWithToleranceOperator;
import org.apache.kafka.connect.runtime.errors.Stage;
import org.apache.kafka.connect.runtime.errors.ToleranceType;
import org.apache.kafka.connect.runtime.errors.WorkerErrantRecordReporter;
import org.apache.kafka.connect.runtime.isolation.Plugins;
import org.apache.kafka.connect.sink.SinkTask;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;
import org.apache.kafka.connect.storage.ClusterConfigState;
import org.apache.kafka.connect.storage.ConnectorOffsetBackingStore;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.HeaderConverter;
import org.apache.kafka.connect.storage.MemoryStatusBackingStore;
import org.apache.kafka.connect.storage.OffsetBackingStore;
import org.apache.kafka.connect.storage.OffsetStorageReaderImpl;
import org.apache.kafka.connect.storage.OffsetStorageWriter;
import org.apache.kafka.connect.storage.StatusBackingStore;
import org.apache.kafka.connect.util.ConnectorTaskId;
import org.apache.kafka.connect.util.LoggingContext;

/**
 * Makes Kafka Connect's own task loops over a producer and a consumer of Drover. It is in Kafka's
 * package because their constructors are; everything that another release may change is here.
 */
public final class TaskLoops {
    /** What a task belongs to. */
    public record Of(ConnectorTaskId id, Map<String, String> connectorConfig, Map<String, String> taskConfig,
        ClassLoader loader, Class<? extends Connector> connectorClass) {}

    /** A task's loop, which runs until the task stops or fails. */
    public static final class Loop implements Runnable {
        private final WorkerTask<?, ?> task;

        private Loop(WorkerTask<?, ?> task, Of of) {
            this.task = task;
            task.initialize(new TaskConfig(of.taskConfig()));
        }

        @Override
        public void run() {
            task.run();
        }

        /** Stops the task; returns whether it has ended in time. Otherwise it is cancelled. */
        public boolean stop(long waitMs) {
            task.stop();
            boolean ended = awaitEnd(waitMs);
            if (!ended) {
                task.cancel();
            }
            task.removeMetrics();
            return ended;
        }

        /** Waits until the task has ended; returns whether it has. */
        public boolean awaitEnd(long waitMs) {
            return task.awaitStop(waitMs);
        }
    }

    private final Plugins plugins;
    private final WorkerConfig workerConfig;
    private final ConnectMetrics metrics;
    private final TaskStatus.Listener listener;
    private final Executor executor;
    private final StatusBackingStore statuses = new MemoryStatusBackingStore();

    public TaskLoops(Plugins plugins, WorkerConfig workerConfig, ConnectMetrics metrics,
            TaskStatus.Listener listener, Executor executor) {
        this.plugins = plugins;
        this.workerConfig = workerConfig;
        this.metrics = metrics;
        this.listener = listener;
        this.executor = executor;
    }

    /** The converter of the offsets' JSON. */
    public static JsonConverter offsetConverter(boolean isKey) {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "false"), isKey);
        return converter;
    }

    /** A source task's loop. */
    public Loop source(Of of, Task plugin, SourceTask task, Producer<byte[], byte[]> producer,
            OffsetBackingStore offsets, ErrorReporter<SourceRecord> reporter) {
        Map<String, String> given = new HashMap<>(of.connectorConfig());
        // each poll is passed on at once: Drover's own transactions follow this setting
        given.put("transaction.boundary", "poll");
        Function<Map<String, String>, SourceConnectorConfig> read =
            settings -> new SourceConnectorConfig(plugins, settings, false);
        SourceConnectorConfig config = read.apply(given);
        Parts<SourceRecord, SourceRecord> parts = new Parts<>(of, plugin, config, read);
        ConnectorOffsetBackingStore store = ConnectorOffsetBackingStore.withOnlyWorkerStore(
            () -> LoggingContext.forTask(of.id()), offsets, "");
        store.configure(workerConfig);
        String name = of.id().connector();
        return new Loop(new ExactlyOnceWorkerSourceTask(of.id(), task, listener, TargetState.STARTED,
            parts.key, parts.value, parts.header, parts.chain, producer, null, null,
            new OffsetStorageReaderImpl(store, name, offsetConverter(true), offsetConverter(false)),
            new OffsetStorageWriter(store, name, offsetConverter(true), offsetConverter(false)),
            store, workerConfig, stateOf(of), metrics, parts.errors, of.loader(), Time.SYSTEM, parts.retries,
            statuses, config, executor, () -> {}, () -> {}, () -> List.of(reporter), parts.metadata, plugins.safeLoaderSwapper()) {
                // Kafka's loop neither commits the offsets of dropped and failed records nor forgets the
                // records until one is sent: a restart would read them again, and the heap would fill
                @Override
                protected void recordDropped(SourceRecord record) {
                    offsetWriter.offset(record.sourcePartition(), record.sourceOffset());
                    super.recordDropped(record);
                }
            }, of);
    }

    /** A sink task's loop. */
    public Loop sink(Of of, Task plugin, SinkTask task, Consumer<byte[], byte[]> consumer,
            ErrorReporter<ConsumerRecord<byte[], byte[]>> reporter) {
        Function<Map<String, String>, SinkConnectorConfig> read = settings -> new SinkConnectorConfig(plugins, settings);
        SinkConnectorConfig config = read.apply(of.connectorConfig());
        Parts<ConsumerRecord<byte[], byte[]>, org.apache.kafka.connect.sink.SinkRecord> parts =
            new Parts<>(of, plugin, config, read);
        boolean reports = config.errorToleranceType() == ToleranceType.ALL || config.enableErrorLog()
            || !config.dlqTopicName().isEmpty();
        WorkerErrantRecordReporter errant = reports
            ? new WorkerErrantRecordReporter(parts.retries, parts.key.get(), parts.value.get(), parts.header.get())
            : null;
        return new Loop(new WorkerSinkTask(of.id(), task, listener, TargetState.STARTED, workerConfig,
            stateOf(of), metrics, parts.key, parts.value, parts.errors, parts.header, parts.chain, consumer,
            of.loader(), Time.SYSTEM, parts.retries, errant, statuses, () -> List.of(reporter), parts.metadata,
            plugins.safeLoaderSwapper()), of);
    }

    private ClusterConfigState stateOf(Of of) {
        String name = of.id().connector();
        return new ClusterConfigState(0, null, Map.of(name, 1), Map.of(name, of.connectorConfig()),
            Map.of(name, TargetState.STARTED), Map.of(of.id(), of.taskConfig()), Map.of(), Map.of(), Map.of(),
            Set.of(), Set.of());
    }

    /** The record with the topic that a transform of Drover gave it. */
    private static <R extends ConnectRecord<R>> R routed(Object original, R record) {
        return original instanceof RoutedRecord routed
            ? record.newRecord(routed.target(), record.kafkaPartition(), record.keySchema(), record.key(),
                record.valueSchema(), record.value(), record.timestamp(), record.headers())
            : record;
    }

    /** What both kinds of loops need. */
    private final class Parts<T, R extends ConnectRecord<R>> {
        final ErrorHandlingMetrics errors;
        final RetryWithToleranceOperator<T> retries;
        final Plugin<Converter> key;
        final Plugin<Converter> value;
        final Plugin<HeaderConverter> header;
        final TransformationChain<T, R> chain;
        final TaskPluginsMetadata metadata;

        /** What exists so far, the last one first: it is closed if a later part fails. */
        private final Deque<AutoCloseable> built = new ArrayDeque<>();

        Parts(Of of, Task plugin, ConnectorConfig config, Function<Map<String, String>, ? extends ConnectorConfig> read) {
            try {
                errors = built(new ErrorHandlingMetrics(of.id(), metrics));
                retries = new RetryWithToleranceOperator<>(config.errorRetryTimeout(), config.errorMaxDelayInMillis(),
                    config.errorToleranceType(), Time.SYSTEM, errors) {
                    @Override
                    public <V> V execute(
                            ProcessingContext<T> context, Operation<V> operation, Stage stage, Class<?> executing) {
                        if (context.original() instanceof GapRecord) {
                            context.error(GapRecord.LEFT_OUT);
                        }
                        return super.execute(context, operation, stage, executing);
                    }
                };
                Converter keys = plugins.newConverter(config, ConnectorConfig.KEY_CONVERTER_CLASS_CONFIG,
                    ConnectorConfig.KEY_CONVERTER_VERSION_CONFIG);
                key = built(metrics.wrap(keys, of.id(), true));
                Converter values = plugins.newConverter(config, ConnectorConfig.VALUE_CONVERTER_CLASS_CONFIG,
                    ConnectorConfig.VALUE_CONVERTER_VERSION_CONFIG);
                value = built(metrics.wrap(values, of.id(), false));
                HeaderConverter headers = plugins.newHeaderConverter(config,
                    ConnectorConfig.HEADER_CONVERTER_CLASS_CONFIG, ConnectorConfig.HEADER_CONVERTER_VERSION_CONFIG);
                header = built(metrics.wrap(headers, of.id()));
                chain = new TransformationChain<>(stages(of, config, read), retries) {
                    @Override
                    public R apply(ProcessingContext<T> context, R record) {
                        return super.apply(context, routed(context.original(), record));
                    }
                };
                metadata = new TaskPluginsMetadata(of.connectorClass(), plugin, keys, values, headers,
                    chain.transformationChainInfo(), plugins);
            } catch (RuntimeException | Error failure) {
                built.forEach(each -> Utils.closeQuietly(each, "a part of a task that does not start"));
                throw failure;
            }
        }

        private <C extends AutoCloseable> C built(C part) {
            built.push(part);
            return part;
        }

        /** The transforms: Kafka makes all of a config together, and those before one that fails would stay open. */
        private List<TransformationStage<R>> stages(
                Of of, ConnectorConfig config, Function<Map<String, String>, ? extends ConnectorConfig> read) {
            List<TransformationStage<R>> stages = new ArrayList<>();
            for (String alias : config.getList(ConnectorConfig.TRANSFORMS_CONFIG)) {
                Map<String, String> only = new HashMap<>(config.originalsStrings());
                only.put(ConnectorConfig.TRANSFORMS_CONFIG, alias);
                List<TransformationStage<R>> one = read.apply(only).transformationStages(plugins, of.id(), metrics);
                one.forEach(this::built);
                stages.addAll(one);
            }
            return stages;
        }
    }
}
