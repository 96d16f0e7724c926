package io.drover.host;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
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
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The consumer of a sink task: has the records that Drover put, keeps the offsets that the task
 * commits until Drover takes them, and turns seeks into rewinds of Drover's reads. A seek beyond the
 * records that Drover put skips those before it.
 */
final class FeedConsumer extends MockConsumer<byte[], byte[]> {
    /** The offsets of a batch in a partition. */
    record Range(long start, long end) {}

    private static final Logger LOG = LoggerFactory.getLogger(FeedConsumer.class);
    private static final int POLL_RECORDS_MAX = 500;
    /** How often the task is idle before a partition is taken to end before the target of a seek. */
    private static final int IDLE_MAX = 5;

    private final Phase phase;
    /** Where the last batch of each partition ended. */
    private final Map<TopicPartition, Long> ends = new HashMap<>();
    /** The seeks beyond that: from the first offset that the task does not get to that at which it continues. */
    private final Map<TopicPartition, Range> skips = new HashMap<>();
    private int idleCount;
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
    /** Whether the task got records since its last commit. */
    private boolean isGiven;
    /** Whether the partitions of the task are known: until then the plugin gets no call, as before open(). */
    private boolean isAssigned;
    private boolean isClosed;

    FeedConsumer(Phase phase) {
        super("earliest");
        this.phase = phase;
    }

    /** Adds partitions of the task, each with the offset of its next record; known ones stay as they are. */
    synchronized void assign(Map<TopicPartition, Long> partitions) {
        partitions.forEach((key, offset) -> {
            if (!assigned.contains(key) && entering.add(key)) {
                positions.put(key, offset);
                ends.put(key, offset);
            }
        });
        isAssigned = true;
        notifyAll();
    }

    /** Adds a batch, with its offsets in each of its partitions. */
    synchronized void put(List<ConsumerRecord<byte[], byte[]>> records, Map<TopicPartition, Range> ranges) {
        addGaps(records, ranges);
        records.removeIf(each -> each.offset() < target(new TopicPartition(each.topic(), each.partition())));
        ranges.forEach((key, range) -> {
            positions.put(key, Math.max(range.start(), target(key)));
            ends.put(key, range.end());
            if (target(key) <= range.end()) {
                skips.remove(key);
            }
            if (!assigned.contains(key)) {
                entering.add(key);
            }
        });
        isAssigned = true;
        idleCount = 0;
        queue.addAll(records);
        isDrained = false;
        notifyAll();
    }

    /** Adds the ends of partitions whose last records are missing: they are committed too. */
    private static void addGaps(
            List<ConsumerRecord<byte[], byte[]>> records, Map<TopicPartition, Range> ranges) {
        Map<TopicPartition, Long> given = new HashMap<>();
        records.forEach(each -> given.put(new TopicPartition(each.topic(), each.partition()), each.offset() + 1));
        ranges.forEach((key, range) -> {
            if (range.start() < range.end() && given.getOrDefault(key, range.start()) < range.end()) {
                records.add(new GapRecord(key.topic(), key.partition(), range.end() - 1));
            }
        });
    }

    /** The offset at which the task wants to continue; 0 if it wants the next one. */
    private long target(TopicPartition partition) {
        Range skip = skips.get(partition);
        return skip == null ? 0 : skip.end();
    }

    /** Drover has no records now: after some time, partitions that end before the target of a seek are read again. */
    synchronized void idle() {
        if (skips.isEmpty() || ++idleCount < IDLE_MAX) {
            return;
        }
        idleCount = 0;
        skips.entrySet().removeIf(each -> {
            if (paused.contains(each.getKey())) {
                return false;
            }
            Range skip = each.getValue();
            LOG.warn("{} has no record at the offset {}, at which the task wants to continue: the task gets the "
                + "records from the offset {} on", each.getKey(), skip.end(), skip.start());
            rewinds.put(each.getKey(), skip.start());
            positions.put(each.getKey(), skip.start());
            return true;
        });
    }

    /** Whether the task received the record of a partition at an offset. */
    synchronized boolean hasGiven(TopicPartition partition, long offset) {
        return offset < ends.getOrDefault(partition, 0L);
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

    /** Whether the task processed all records and did not commit their offsets yet; it is asked once. */
    synchronized boolean wantsCommit() {
        boolean wants = isGiven && queue.isEmpty();
        isGiven &= !wants;
        return wants;
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
                        isGiven = true;
                        phase.inSteps();
                        return new ConsumerRecords<>(found, Map.of());
                    }
                    isDrained = true;
                    notifyAll();
                }
                long left = (end - System.nanoTime()) / 1_000_000;
                if (isClosed || isAssigned && left <= 0) {
                    return ConsumerRecords.empty();
                }
                try {
                    wait(isAssigned ? left : 0);
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
        long end = ends.getOrDefault(partition, offset);
        long next = end;
        for (Iterator<ConsumerRecord<byte[], byte[]>> left = queue.iterator(); left.hasNext();) {
            ConsumerRecord<byte[], byte[]> each = left.next();
            if (each.partition() == partition.partition() && each.topic().equals(partition.topic())) {
                next = Math.min(next, each.offset());
                left.remove();
            }
        }
        if (offset > end) {
            rewinds.remove(partition);
            skips.put(partition, new Range(next, offset));
        } else {
            rewinds.put(partition, offset);
            skips.remove(partition);
        }
        positions.put(partition, offset);
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
        offsets.forEach((key, offset) ->
            commits.put(key, Math.min(offset.offset(), ends.getOrDefault(key, offset.offset()))));
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
