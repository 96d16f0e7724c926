package io.drover.host;

import org.apache.kafka.connect.source.SourceRecord;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Logs records that may not fit into the heap: a JVM that ends for that reason does not know the record. */
final class LargeRecords {
    private static final Logger LOG = LoggerFactory.getLogger(LargeRecords.class);
    private static final long HEAP_BYTES = Runtime.getRuntime().maxMemory();
    private static final long LARGE_BYTES = HEAP_BYTES / 8;

    private LargeRecords() {}

    static void check(SourceRecord record) {
        if (record != null && size(record.value()) > LARGE_BYTES) {
            warn(String.valueOf(record.topic()), size(record.value()));
        }
    }

    static void check(String topic, int partition, long offset, int bytes) {
        if (bytes > LARGE_BYTES) {
            warn(topic + "-" + partition + "@" + offset, bytes);
        }
    }

    private static void warn(String where, long bytes) {
        LOG.warn("a record of {} has {} bytes, and needs several times that in the heap of {} bytes",
            where, bytes, HEAP_BYTES);
    }

    /** The size of a text or of bytes; 0 for other values, whose size is not known. */
    private static long size(Object value) {
        return value instanceof String text ? text.length() : value instanceof byte[] bytes ? bytes.length : 0;
    }
}
