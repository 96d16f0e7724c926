package io.drover.host;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.function.BiPredicate;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.runtime.errors.ErrorReporter;
import org.apache.kafka.connect.runtime.errors.ProcessingContext;

/** The records of a sink that failed, for Drover's dead letter queue. */
final class Rejections implements ErrorReporter<ConsumerRecord<byte[], byte[]>> {
    /** A record that failed, and where. */
    record Rejection(TopicPartition partition, long offset, String stage, String reason) {}

    private final BiPredicate<TopicPartition, Long> isGiven;
    private final List<Rejection> found = new ArrayList<>();
    private final Set<String> deferred = new HashSet<>();

    /** @param isGiven whether the task received the record of a topic partition at an offset */
    Rejections(BiPredicate<TopicPartition, Long> isGiven) {
        this.isGiven = isGiven;
    }

    @Override
    public synchronized Future<RecordMetadata> report(ProcessingContext<ConsumerRecord<byte[], byte[]>> context) {
        ConsumerRecord<byte[], byte[]> record = context.original();
        if (!isGiven.test(new TopicPartition(record.topic(), record.partition()), record.offset())) {
            throw new ConnectException("the errant record reporter got a record that the task did not receive: "
                + record.topic() + "-" + record.partition() + "@" + record.offset()
                + "; it takes a record of put(), or one with its original topic, partition and offset");
        }
        String step = context.executingClass() == null ? "" : context.executingClass().getName() + ": ";
        found.add(new Rejection(new TopicPartition(record.topic(), record.partition()), record.offset(),
            String.valueOf(context.stage()), step + Failures.message(context.error())));
        return CompletableFuture.completedFuture(null);
    }

    synchronized List<Rejection> take() {
        List<Rejection> taken = List.copyOf(found);
        found.clear();
        return taken;
    }

    /** Records that were reported after their batch: they are rejected when they are read again. */
    synchronized void defer(Rejection rejection) {
        if (deferred.add(rejection.partition() + "@" + rejection.offset())) {
            late.add(rejection);
        }
    }

    private final List<Rejection> late = new ArrayList<>();

    /** Rejects a record of a new batch if it was reported before; returns whether it was. */
    synchronized boolean rejects(ConsumerRecord<byte[], byte[]> record) {
        if (deferred.isEmpty()
                || !deferred.remove(new TopicPartition(record.topic(), record.partition()) + "@" + record.offset())) {
            return false;
        }
        late.removeIf(each -> {
            boolean isIt = each.offset() == record.offset() && each.partition().partition() == record.partition()
                && each.partition().topic().equals(record.topic());
            if (isIt) {
                found.add(each);
            }
            return isIt;
        });
        return true;
    }
}
