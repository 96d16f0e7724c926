package io.drover.host;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.connect.errors.ConnectException;

/**
 * The end of a batch of a topic partition whose last records the task does not get, because a step of
 * Drover dropped or rejected them. The loop counts its offset, as that of a record that a transform
 * in the host drops; no converter, transform or plugin sees it.
 */
public final class GapRecord extends ConsumerRecord<byte[], byte[]> {
    /** Makes the loop leave the record out; it is no error, and nothing reports it. */
    public static final ConnectException LEFT_OUT = new ConnectException("there is no record");

    GapRecord(String topic, int partition, long offset) {
        super(topic, partition, offset, null, null);
    }
}
