package io.drover.host;

import org.apache.kafka.clients.consumer.ConsumerRecord;

/** A record that a transform of Drover gave another topic. */
public final class RoutedRecord extends ConsumerRecord<byte[], byte[]> {
    private final String target;

    RoutedRecord(ConsumerRecord<byte[], byte[]> read, String target) {
        super(read.topic(), read.partition(), read.offset(), read.timestamp(), read.timestampType(),
            read.serializedKeySize(), read.serializedValueSize(), read.key(), read.value(), read.headers(),
            read.leaderEpoch());
        this.target = target;
    }

    /** The topic that the plugin's transforms and the plugin see; topic() is where the record was read. */
    public String target() {
        return target;
    }
}
