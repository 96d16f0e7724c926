package io.drover.host;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.MockConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetCommitCallback;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;

/**
 * The consumer of a sink task: has the records that Drover put, keeps the offsets that the task
 * commits until Drover takes them, and turns seeks into rewinds of Drover's reads.
 */
final class FeedConsumer extends MockConsumer<byte[], byte[]> {
    private static final int POLL_RECORDS_MAX = 500;

    private final Phase phase;
    private final Deque<ConsumerRecord<byte[], byte[]>> queue = new ArrayDeque<>();
    private final Set<TopicPartition> assigned = new LinkedHashSet<>();
    private final Set<TopicPartition> entering = new LinkedHashSet<>();
    private final Map<TopicPartition, Long> positions = new HashMap<>();
    private final Set<TopicPartition> paused = new HashSet<>();
    private final Map<TopicPartition, Long> commits = new LinkedHashMap<>();
    private final Map<TopicPartition, Long> rewinds = new LinkedHashMap<>();
    private ConsumerRebalanceListener listener;
    private boolean isAwake;
    private boolean isDrained = true;
    private boolean isRetrying;
    private boolean isClosed;

    FeedConsumer(Phase phase) {
        super("earliest");
        this.phase = phase;
    }

    /** Adds a batch; the positions are where each of its partitions starts. */
    synchronized void put(List<ConsumerRecord<byte[], byte[]>> records, Map<TopicPartition, Long> starts) {
        starts.forEach((key, start) -> {
            positions.put(key, start);
            if (!assigned.contains(key)) {
                entering.add(key);
            }
        });
        queue.addAll(records);
        isDrained = false;
        notifyAll();
    }

    /** Waits until the task has processed and may commit all records; returns whether it has. */
    synchronized boolean awaitDrained(long waitMs) throws InterruptedException {
        long end = System.nanoTime() + waitMs * 1_000_000;
        while (!isDrained && !isClosed) {
            long left = (end - System.nanoTime()) / 1_000_000;
            if (left <= 0) {
                return false;
            }
            wait(left);
        }
        return isDrained;
    }

    /** Whether the task asked for the records of its last call again. */
    synchronized void retrying(boolean retrying) {
        isRetrying = retrying;
    }

    /** Whether no record waits for the task. */
    synchronized boolean isEmpty() {
        return queue.isEmpty();
    }

    synchronized Map<TopicPartition, Long> takeCommits() {
        return taken(commits);
    }

    synchronized Map<TopicPartition, Long> takeRewinds() {
        return taken(rewinds);
    }

    private static Map<TopicPartition, Long> taken(Map<TopicPartition, Long> from) {
        Map<TopicPartition, Long> found = new LinkedHashMap<>(from);
        from.clear();
        return found;
    }

    @Override
    public void subscribe(Collection<String> topics, ConsumerRebalanceListener listener) {
        this.listener = listener;
    }

    @Override
    public void subscribe(Pattern pattern, ConsumerRebalanceListener listener) {
        this.listener = listener;
    }

    @Override
    public ConsumerRecords<byte[], byte[]> poll(Duration timeout) {
        long end = System.nanoTime() + timeout.toNanos();
        phase.idle();
        while (true) {
            List<TopicPartition> entered;
            synchronized (this) {
                if (isAwake) {
                    isAwake = false;
                    throw new WakeupException();
                }
                entered = List.copyOf(entering);
                entering.clear();
                assigned.addAll(entered);
            }
            if (!entered.isEmpty()) {
                listener.onPartitionsAssigned(entered); // opens them; may pause and seek
            }
            synchronized (this) {
                if (!entered.isEmpty()) {
                    continue;
                }
                if (!isRetrying) {
                    dropPaused();
                    Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> found = next();
                    if (!found.isEmpty()) {
                        phase.inSteps();
                        return new ConsumerRecords<>(found, Map.of());
                    }
                    isDrained = true;
                    notifyAll();
                }
                long left = (end - System.nanoTime()) / 1_000_000;
                if (left <= 0 || isClosed) {
                    return ConsumerRecords.empty();
                }
                try {
                    wait(left);
                } catch (InterruptedException interrupted) {
                    Thread.currentThread().interrupt();
                    return ConsumerRecords.empty();
                }
            }
        }
    }

    private Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> next() {
        Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> found = new LinkedHashMap<>();
        for (int n = 0; n < POLL_RECORDS_MAX && !queue.isEmpty(); n++) {
            ConsumerRecord<byte[], byte[]> record = queue.remove();
            TopicPartition key = new TopicPartition(record.topic(), record.partition());
            found.computeIfAbsent(key, each -> new ArrayList<>()).add(record);
            positions.put(key, record.offset() + 1);
        }
        return found;
    }

    /** The records of paused partitions are read again after they are resumed. */
    private void dropPaused() {
        if (paused.isEmpty() || queue.isEmpty()) {
            return;
        }
        queue.removeIf(record -> {
            TopicPartition key = new TopicPartition(record.topic(), record.partition());
            if (!paused.contains(key)) {
                return false;
            }
            rewinds.merge(key, record.offset(), Math::min);
            return true;
        });
    }

    @Override
    public synchronized void seek(TopicPartition partition, long offset) {
        rewinds.put(partition, offset);
        positions.put(partition, offset);
        queue.removeIf(each -> each.partition() == partition.partition() && each.topic().equals(partition.topic()));
    }

    @Override
    public synchronized void pause(Collection<TopicPartition> partitions) {
        paused.addAll(partitions);
    }

    @Override
    public synchronized void resume(Collection<TopicPartition> partitions) {
        paused.removeAll(partitions);
    }

    @Override
    public synchronized Set<TopicPartition> paused() {
        return Set.copyOf(paused);
    }

    @Override
    public synchronized Set<TopicPartition> assignment() {
        return new LinkedHashSet<>(assigned);
    }

    @Override
    public synchronized long position(TopicPartition partition) {
        return positions.getOrDefault(partition, 0L);
    }

    @Override
    public void commitAsync(Map<TopicPartition, OffsetAndMetadata> offsets, OffsetCommitCallback callback) {
        commitSync(offsets);
        callback.onComplete(offsets, null);
    }

    @Override
    public synchronized void commitSync(Map<TopicPartition, OffsetAndMetadata> offsets) {
        offsets.forEach((key, offset) -> commits.put(key, offset.offset()));
    }

    @Override
    public synchronized void wakeup() {
        isAwake = true;
        notifyAll();
    }

    @Override
    public void close() {
        close(Duration.ZERO);
    }

    @Override
    public synchronized void close(Duration timeout) {
        isClosed = true;
        notifyAll();
    }
}
