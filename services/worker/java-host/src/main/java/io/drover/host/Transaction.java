package io.drover.host;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.source.SourceRecord;

/** Records and offsets of a source task that become visible together or not at all. */
final class Transaction {
    /** A record to acknowledge; row is its index in the transaction, -1 if it was dropped. */
    record Acknowledgement(SourceRecord source, int row) {}

    /**
     * A source record that failed, for Drover's counts and its dead letter queue; key and raw are the
     * key and the value as JSON, and origin is its position in the source.
     */
    record Rejected(String topic, Integer partition, byte[] key, byte[] raw, Long timestamp, String error,
            String origin) {
        long size() {
            return 64L + Rows.length(key) + Rows.length(raw) + error.length() + origin.length();
        }
    }

    final List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
    final List<Rejected> rejected = new ArrayList<>();
    final Map<String, String> offsets = new LinkedHashMap<>();
    private final List<Acknowledgement> acknowledgements = new ArrayList<>();
    private boolean isComplete;
    private boolean isDurable;
    private boolean isAcknowledged;
    private Places places = Places.UNKNOWN;
    long size;

    /** Where Drover stored the rows. */
    interface Places {
        Places UNKNOWN = row -> null;

        /** The partition and the offset of a row; null if they are not known. */
        Place of(int row);
    }

    /** A row's partition and its offset. */
    record Place(int partition, long offset) {}

    void add(ProducerRecord<byte[], byte[]> record) {
        records.add(record);
        size += Rows.size(record);
    }

    void reject(Rejected record) {
        rejected.add(record);
        size += record.size();
    }

    synchronized void acknowledge(SourceRecord source, int row) {
        acknowledgements.add(new Acknowledgement(source, row));
    }

    /** All acknowledgements were added; returns whether they are due. */
    synchronized boolean complete() {
        isComplete = true;
        return isDue();
    }

    /** The rows and offsets are durable; returns whether the acknowledgements are due. */
    synchronized boolean durable(Places where) {
        places = where;
        isDurable = true;
        return isDue();
    }

    private boolean isDue() {
        boolean due = isComplete && isDurable && !isAcknowledged;
        isAcknowledged |= due;
        return due;
    }

    List<Acknowledgement> acknowledgements() {
        return acknowledgements;
    }

    /** The metadata of a row, with the offset -1 if it is not known, as without acks in Kafka. */
    RecordMetadata metadata(int row) {
        if (row < 0) {
            return null;
        }
        ProducerRecord<byte[], byte[]> record = records.get(row);
        Place place = places.of(row);
        if (place == null) {
            place = new Place(record.partition() == null ? 0 : record.partition(), -1);
        }
        return new RecordMetadata(new TopicPartition(record.topic(), place.partition()), place.offset(), 0,
            record.timestamp() == null ? -1 : record.timestamp(),
            Rows.length(record.key()), Rows.length(record.value()));
    }
}
