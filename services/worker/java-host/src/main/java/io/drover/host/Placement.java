package io.drover.host;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.TopicPartition;

/**
 * The ranges of offsets that Drover stored rows at. Rows never return from Drover, so the partition of each
 * row is found as Drover found it: its own, that of its key, or 0. A partition whose rows are not exactly
 * those of its ranges is unknown: Drover dropped some of them, as dead letters.
 */
final class Placement {
    private record Range(long start, long end) {}

    private final Map<TopicPartition, List<Range>> ranges = new HashMap<>();
    private final Map<String, Integer> partitionCounts = new HashMap<>();

    Placement(JsonNode request) {
        request.get("ranges").forEach(each -> ranges
            .computeIfAbsent(new TopicPartition(each.get(0).asText(), each.get(1).asInt()), key -> new ArrayList<>())
            .add(new Range(each.get(2).asLong(), each.get(3).asLong())));
        request.get("partition_counts").fields()
            .forEachRemaining(each -> partitionCounts.put(each.getKey(), each.getValue().asInt()));
    }

    /** The places of rows that were stored in this order. */
    Transaction.Places of(List<ProducerRecord<byte[], byte[]>> rows) {
        int[] partitions = new int[rows.size()];
        Map<TopicPartition, Long> counts = new HashMap<>();
        for (int row = 0; row < partitions.length; row++) {
            partitions[row] = partition(rows.get(row));
            counts.merge(new TopicPartition(rows.get(row).topic(), partitions[row]), 1L, Long::sum);
        }
        counts.keySet().removeIf(each -> counts.get(each) != stored(each));
        long[] offsets = new long[rows.size()];
        Map<TopicPartition, Long> seen = new HashMap<>();
        for (int row = 0; row < partitions.length; row++) {
            TopicPartition key = new TopicPartition(rows.get(row).topic(), partitions[row]);
            offsets[row] = counts.containsKey(key) ? offset(key, seen.merge(key, 1L, Long::sum) - 1) : -1;
        }
        return row -> offsets[row] < 0 ? null : new Transaction.Place(partitions[row], offsets[row]);
    }

    private int partition(ProducerRecord<byte[], byte[]> record) {
        if (record.partition() != null) {
            return record.partition();
        }
        if (record.key() == null) {
            return 0;
        }
        int count = partitionCounts.getOrDefault(record.topic(), 0);
        return count == 0 ? -1 : BuiltInPartitioner.partitionForKey(record.key(), count);
    }

    private long stored(TopicPartition key) {
        return ranges.getOrDefault(key, List.of()).stream().mapToLong(each -> each.end() - each.start()).sum();
    }

    private long offset(TopicPartition key, long index) {
        long left = index;
        for (Range each : ranges.get(key)) {
            if (left < each.end() - each.start()) {
                return each.start() + left;
            }
            left -= each.end() - each.start();
        }
        throw new IllegalStateException("a row beyond the ranges of " + key);
    }
}
