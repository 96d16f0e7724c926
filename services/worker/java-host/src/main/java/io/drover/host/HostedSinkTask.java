package io.drover.host;

import java.util.Collection;
import java.util.Map;
import java.util.concurrent.Callable;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;
import org.apache.kafka.connect.sink.SinkTaskContext;

/** A plugin's sink task that commits after the last record of each batch of Drover. */
final class HostedSinkTask extends SinkTask {
    private final SinkTask plugin;
    private final FeedConsumer consumer;
    private final Phase phase;

    HostedSinkTask(SinkTask plugin, FeedConsumer consumer, Phase phase) {
        this.plugin = plugin;
        this.consumer = consumer;
        this.phase = phase;
    }

    @Override
    public String version() {
        return plugin.version();
    }

    @Override
    public void initialize(SinkTaskContext context) {
        super.initialize(context);
        plugin.initialize(context);
    }

    @Override
    public void start(Map<String, String> properties) {
        run("start", () -> plugin.start(properties));
    }

    @Override
    public void put(Collection<SinkRecord> records) {
        try {
            run("put", () -> plugin.put(records));
        } catch (RetriableException error) {
            consumer.retrying(true);
            throw error;
        }
        consumer.retrying(false);
        if (consumer.wantsCommit()) { // also if all records were dropped
            context.requestCommit();
        }
    }

    @Override
    public Map<TopicPartition, OffsetAndMetadata> preCommit(Map<TopicPartition, OffsetAndMetadata> offsets) {
        Map<TopicPartition, OffsetAndMetadata> found = call("preCommit", () -> plugin.preCommit(offsets));
        return found == null ? Map.of() : found;
    }

    @Override
    public void flush(Map<TopicPartition, OffsetAndMetadata> offsets) {
        plugin.flush(offsets);
    }

    @Override
    public void open(Collection<TopicPartition> partitions) {
        run("open", () -> plugin.open(partitions));
    }

    @Override
    public void close(Collection<TopicPartition> partitions) {
        run("close", () -> plugin.close(partitions));
    }

    @Override
    public void stop() {
        run("stop", plugin::stop);
    }

    private void run(String what, Runnable action) {
        call(what, () -> {
            action.run();
            return null;
        });
    }

    private <T> T call(String what, Callable<T> action) {
        try {
            return phase.in(what, action);
        } catch (RuntimeException error) {
            throw error;
        } catch (Exception error) {
            throw new ConnectException(error);
        }
    }
}
