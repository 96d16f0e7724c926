package io.drover.host;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.connect.connector.Connector;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.runtime.TaskLoops;
import org.apache.kafka.connect.runtime.TaskStatus;
import org.apache.kafka.connect.sink.SinkTask;
import org.apache.kafka.connect.source.SourceTask;
import org.apache.kafka.connect.util.ConnectorTaskId;

/** A task of a plugin on its own thread, in Kafka Connect's own loop. */
abstract class TaskRun implements TaskStatus.Listener {
    private static final long STOP_MS = 3_000;
    /** How long a poll() may take to end after its thread was interrupted. */
    private static final long INTERRUPTED_MS = 1_000;
    /** How often the plugin's metrics are part of an answer. */
    private static final long METRICS_NANOS = 1_000_000_000;
    private static final int METRICS_MAX = 64;

    final Phase phase = new Phase();
    final PluginSet plugins;
    final TaskLoops.Of of;
    final TaskLoops loops;
    final Task plugin;
    private final CountDownLatch started = new CountDownLatch(1);
    private volatile TaskFailedException failure;
    private TaskLoops.Loop loop;
    private Thread thread;
    private long metricsNanos = System.nanoTime() - METRICS_NANOS;

    TaskRun(PluginSet plugins, JsonNode request) throws Exception {
        this.plugins = plugins;
        Map<String, String> config = Json.texts(request.get("connector_config"));
        Map<String, String> taskConfig = Json.texts(request.get("task_config"));
        ConnectorTaskId id = new ConnectorTaskId(request.get("connector").asText(), request.get("task").asInt());
        ClassLoader loader = plugins.taskLoader(config);
        Connector connector = plugins.newConnector(config);
        // a connector may choose the class when it starts, and its answer is in the config of the task
        String name = taskConfig.get("task.class");
        Class<? extends Task> taskClass = plugins.within(loader, () -> name == null
            ? connector.taskClass() : Class.forName(name, true, loader).asSubclass(Task.class));
        taskConfig.put("task.class", taskClass.getName());
        of = new TaskLoops.Of(id, config, taskConfig, loader, connector.getClass());
        loops = new TaskLoops(plugins.plugins(), plugins.workerConfig, plugins.metrics, this,
            Executors.newSingleThreadExecutor(each -> daemon(each, "close " + id)));
        plugin = plugins.within(loader, () -> plugins.plugins().newTask(taskClass));
    }

    final void start() throws Exception {
        loop = plugins.within(of.loader(), this::makeLoop);
        // a plugin finds its classes by the loader of the thread, as in Kafka Connect
        thread = daemon(loop, "task " + of.id());
        thread.setContextClassLoader(of.loader());
        thread.start();
    }

    abstract TaskLoops.Loop makeLoop();

    static Thread daemon(Runnable work, String name) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        return thread;
    }

    /** Waits until the plugin has started; returns whether it has. */
    final boolean awaitStart(long waitMs) throws Exception {
        boolean isStarted = started.await(waitMs, TimeUnit.MILLISECONDS);
        check();
        return isStarted;
    }

    /** Throws the error that ended the task. */
    final void check() throws TaskFailedException {
        if (failure != null) {
            throw failure;
        }
    }

    /** Adds what the plugin does now, and once a second its metrics (KIP-877). */
    final void describe(ObjectNode answer) {
        answer.put("phase", phase.name());
        answer.put("since_ms", phase.sinceMs());
        long now = System.nanoTime();
        if (now - metricsNanos < METRICS_NANOS) {
            return;
        }
        metricsNanos = now;
        ObjectNode found = answer.putObject("metrics");
        plugins.metrics.metrics().metrics().forEach((name, metric) -> {
            if (name.group().equals("plugins") && isOfTask(name) && found.size() < METRICS_MAX
                && metricValue(metric) instanceof Number value && Double.isFinite(value.doubleValue())) {
                found.put(metricName(name), value.doubleValue());
            }
        });
    }

    private boolean isOfTask(MetricName name) {
        return of.id().connector().equals(name.tags().get("connector"))
            && String.valueOf(of.id().task()).equals(name.tags().get("task"));
    }

    /** The value; null if the plugin's code fails. */
    private Object metricValue(KafkaMetric metric) {
        try {
            return plugins.within(of.loader(), metric::metricValue);
        } catch (Exception | LinkageError error) {
            return null;
        }
    }

    /** The name of a metric, after the values of its further tags, such as the alias of a transform. */
    private static String metricName(MetricName name) {
        List<String> parts = new ArrayList<>();
        new TreeMap<>(name.tags()).forEach((tag, value) -> {
            if (!tag.equals("connector") && !tag.equals("task")) {
                parts.add(value);
            }
        });
        parts.add(name.name());
        return String.join("_", parts);
    }

    /** Stops the task; returns whether it has ended: Java ends no thread that stays in a method of the plugin. */
    boolean stop() throws InterruptedException {
        boolean ended = loop.stop(STOP_MS);
        if (!ended && phase.name().equals("poll")) { // the one method that may be interrupted
            thread.interrupt();
            ended = loop.awaitEnd(INTERRUPTED_MS);
        }
        return ended;
    }

    @Override
    public void onStartup(ConnectorTaskId id) {
        started.countDown();
    }

    @Override
    public void onFailure(ConnectorTaskId id, Throwable cause) {
        if (failure == null) {
            failure = new TaskFailedException(phase.failed(cause), cause);
        }
        started.countDown();
        failed();
    }

    /** Wakes calls that wait for the task. */
    void failed() {}

    @Override
    public void onPause(ConnectorTaskId id) {}

    @Override
    public void onResume(ConnectorTaskId id) {}

    @Override
    public void onShutdown(ConnectorTaskId id) {}

    @Override
    public void onDeletion(ConnectorTaskId id) {}

    @Override
    public void onRestart(ConnectorTaskId id) {}

    /** A source task. */
    static final class Source extends TaskRun {
        private final BatchProducer producer = new BatchProducer(phase);
        private final OffsetStore offsets;
        private final HostedSourceTask task;

        Source(PluginSet plugins, JsonNode request) throws Exception {
            super(plugins, request);
            offsets = new OffsetStore(request.get("offsets"), producer::addOffsets);
            task = new HostedSourceTask((SourceTask) plugin, producer, phase, of.connectorConfig());
            producer.onCommit = task::committed;
        }

        @Override
        TaskLoops.Loop makeLoop() {
            return loops.source(of, plugin, task, producer, offsets, new SourceRejections(producer));
        }

        ObjectNode poll(JsonNode request) throws Exception {
            check();
            BatchProducer.Batch batch = producer.take(
                request.get("records_max").asLong(), request.get("bytes_max").asLong());
            ObjectNode answer = Json.object();
            describe(answer);
            if (batch == null) {
                answer.put("commit_overdue", task.isCommitOverdue());
                return answer;
            }
            answer.put("batch", batch.id());
            answer.put("rows", batch.rows().size());
            answer.put("rejected", batch.rejected().size());
            ArrayNode written = answer.putArray("offsets");
            batch.offsets().forEach((partition, offset) -> written.addArray().add(partition).add(offset));
            return answer;
        }

        void fetch(JsonNode request, OutputStream out) throws Exception {
            BatchProducer.Batch batch = producer.taken(request.get("batch").asLong());
            int rows = batch.rows().size();
            long part = request.get("part").asLong();
            long parts = request.get("parts").asLong();
            List<Transaction.Rejected> rejected = batch.rejected();
            Rows.write(batch.rows().subList((int) (rows * part / parts), (int) (rows * (part + 1) / parts)),
                part == parts - 1 ? rejected : List.of(), !rejected.isEmpty(), out);
        }

        /** Whether the plugin wants to know where its records are stored. */
        boolean acknowledges() {
            return task.acknowledges();
        }

        /** Calls a commit() that was left out. */
        void commitOverdue() throws Exception {
            plugins.within(of.loader(), () -> {
                task.commitOverdue();
                return null;
            });
        }

        /** The place of the rows of the oldest batches, which Drover stored together. */
        void placed(JsonNode request) {
            producer.place(request.get("batches").asInt(), new Placement(request));
        }

        /** The batch is durable. */
        void durable(JsonNode request) throws Exception {
            BatchProducer.Batch batch = producer.oldest(request.get("batch").asLong());
            int first = 0;
            for (Transaction each : batch.transactions()) {
                int start = first;
                if (each.durable(row -> batch.places().of(start + row))) {
                    plugins.within(of.loader(), () -> {
                        task.acknowledge(each);
                        return null;
                    });
                }
                first += each.records.size();
            }
            producer.removeOldest();
        }

        @Override
        boolean stop() throws InterruptedException {
            producer.close();
            return super.stop();
        }
    }

    /** A sink task. */
    static final class Sink extends TaskRun {
        private final FeedConsumer consumer = new FeedConsumer(phase);
        private final Rejections rejections = new Rejections(consumer::hasGiven);
        private long lastBatch;

        Sink(PluginSet plugins, JsonNode request) throws Exception {
            super(plugins, request);
        }

        @Override
        TaskLoops.Loop makeLoop() {
            return loops.sink(of, plugin, new HostedSinkTask((SinkTask) plugin, consumer, phase), consumer, rejections);
        }

        /** Tells the task its partitions, each with the offset of its next record. */
        void assign(JsonNode request) throws Exception {
            check();
            Map<TopicPartition, Long> partitions = new LinkedHashMap<>();
            request.get("partitions").forEach(each -> partitions.put(
                new TopicPartition(each.get(0).asText(), each.get(1).asInt()), each.get(2).asLong()));
            consumer.assign(partitions);
        }

        /** Takes a batch; a batch that an executor sends again is ignored. */
        synchronized void put(JsonNode request, InputStream in) throws Exception {
            List<ConsumerRecord<byte[], byte[]>> records = Rows.read(in);
            long batch = request.get("batch").asLong();
            if (batch <= lastBatch) {
                return;
            }
            lastBatch = batch;
            records.removeIf(rejections::rejects);
            check();
            Map<TopicPartition, FeedConsumer.Range> ranges = new LinkedHashMap<>();
            request.get("ranges").forEach(each ->
                ranges.put(new TopicPartition(each.get(0).asText(), each.get(1).asInt()),
                    new FeedConsumer.Range(each.get(2).asLong(), each.get(3).asLong())));
            consumer.put(records, ranges);
        }

        /** What the task did: offsets to commit, rewinds, pauses and rejected records since the last call. */
        ObjectNode progress(JsonNode request) throws Exception {
            boolean isDone = consumer.awaitDrained(request.get("wait_ms").asLong());
            check();
            ObjectNode answer = Json.object();
            answer.put("done", isDone);
            describe(answer);
            if (isDone) {
                if (request.get("idle").asBoolean()) {
                    consumer.idle();
                }
                fill(answer.putArray("commits"), consumer.takeCommits());
                fill(answer.putArray("rewinds"), consumer.takeRewinds());
                Map<TopicPartition, Long> paused = new HashMap<>();
                consumer.paused().forEach(each -> paused.put(each, 0L));
                fill(answer.putArray("paused"), paused);
                ArrayNode rejected = answer.putArray("rejected");
                rejections.take().forEach(each -> rejected.addArray().add(each.partition().topic())
                    .add(each.partition().partition()).add(each.offset()).add(each.stage()).add(each.reason()));
            }
            return answer;
        }

        void defer(JsonNode request) {
            request.get("rejected").forEach(each -> rejections.defer(new Rejections.Rejection(
                new TopicPartition(each.get(0).asText(), each.get(1).asInt()), each.get(2).asLong(),
                each.get(3).asText(), each.get(4).asText())));
        }

        private static void fill(ArrayNode array, Map<TopicPartition, Long> offsets) {
            offsets.forEach((key, offset) -> array.addArray().add(key.topic()).add(key.partition()).add(offset));
        }

        @Override
        void failed() {
            consumer.close();
        }
    }
}
