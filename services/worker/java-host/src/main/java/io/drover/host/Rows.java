package io.drover.host;

import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.channels.Channels;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BaseVariableWidthVector;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.VarBinaryVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.complex.ListVector;
import org.apache.arrow.vector.complex.StructVector;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.TimestampType;

/** Records as Arrow streams, with the columns of Drover's rows of bytes. */
final class Rows {
    static final BufferAllocator MEMORY = new RootAllocator();
    private static final int BATCH_ROWS = 16_384;
    private static final int REJECTED_ROWS = 256;
    private static final long BATCH_BYTES = 8 << 20;
    private static final ArrowType UTF8 = new ArrowType.Utf8();
    private static final ArrowType BINARY = new ArrowType.Binary();
    private static final ArrowType INT = new ArrowType.Int(32, true);
    private static final ArrowType LONG = new ArrowType.Int(64, true);
    private static final Field HEADER = new Field("element", FieldType.nullable(new ArrowType.Struct()),
        List.of(field("key", UTF8), field("value", BINARY)));
    private static final Schema PRODUCED = new Schema(List.of(
        field("topic", UTF8), field("partition", INT), field("key", BINARY), field("value", BINARY),
        new Field("headers", FieldType.nullable(new ArrowType.List()), List.of(HEADER)), field("timestamp", LONG)));

    /** With the columns of records that failed; their names are those of Drover's record module. */
    private static final Schema WITH_REJECTED = new Schema(Stream.concat(PRODUCED.getFields().stream(), Stream.of(
        field("__drover_error", UTF8), field("__drover_raw", BINARY), field("__drover_origin", UTF8))).toList());

    private Rows() {}

    private static Field field(String name, ArrowType type) {
        return new Field(name, FieldType.nullable(type), null);
    }

    static int length(byte[] bytes) {
        return bytes == null ? 0 : bytes.length;
    }

    static long size(ProducerRecord<byte[], byte[]> record) {
        long size = 64L + length(record.key()) + length(record.value());
        for (Header header : record.headers()) {
            size += 32L + header.key().length() + length(header.value());
        }
        return size;
    }

    /** Writes records as an Arrow stream, then rejected ones; hasRejected adds the columns for them. */
    static void write(List<ProducerRecord<byte[], byte[]>> records, List<Transaction.Rejected> rejected,
            boolean hasRejected, OutputStream out) throws Exception {
        try (VectorSchemaRoot root = VectorSchemaRoot.create(hasRejected ? WITH_REJECTED : PRODUCED, MEMORY);
                ArrowStreamWriter writer = new ArrowStreamWriter(root, null, Channels.newChannel(new Kept(out)))) {
            writer.start();
            int next = 0;
            while (next < records.size()) {
                root.allocateNew();
                next = fill(root, records, next);
                writer.writeBatch();
                root.clear();
            }
            for (int first = 0; first < rejected.size(); first += REJECTED_ROWS) {
                root.allocateNew();
                fillRejected(root, rejected.subList(first, Math.min(first + REJECTED_ROWS, rejected.size())));
                writer.writeBatch();
                root.clear();
            }
            writer.end();
        }
    }

    /** A stream that stays open when its writer is closed. */
    static final class Kept extends FilterOutputStream {
        Kept(OutputStream out) {
            super(out);
        }

        @Override
        public void write(byte[] bytes, int start, int length) throws IOException {
            out.write(bytes, start, length);
        }

        @Override
        public void close() throws IOException {
            flush();
        }
    }

    private static void fillRejected(VectorSchemaRoot root, List<Transaction.Rejected> rejected) {
        for (int row = 0; row < rejected.size(); row++) {
            Transaction.Rejected each = rejected.get(row);
            if (each.topic() != null) {
                set(root, "topic", row, each.topic().getBytes(StandardCharsets.UTF_8));
            }
            if (each.partition() != null) {
                ((IntVector) root.getVector("partition")).setSafe(row, each.partition());
            }
            if (each.timestamp() != null) {
                ((BigIntVector) root.getVector("timestamp")).setSafe(row, each.timestamp());
            }
            set(root, "key", row, each.key());
            set(root, "__drover_raw", row, each.raw());
            set(root, "__drover_error", row, each.error().getBytes(StandardCharsets.UTF_8));
            set(root, "__drover_origin", row, each.origin().getBytes(StandardCharsets.UTF_8));
        }
        root.setRowCount(rejected.size());
    }

    private static void set(VectorSchemaRoot root, String column, int row, byte[] bytes) {
        if (bytes != null) {
            ((BaseVariableWidthVector) root.getVector(column)).setSafe(row, bytes);
        }
    }

    private static int fill(VectorSchemaRoot root, List<ProducerRecord<byte[], byte[]>> records, int first) {
        VarCharVector topics = (VarCharVector) root.getVector(0);
        IntVector partitions = (IntVector) root.getVector(1);
        VarBinaryVector keys = (VarBinaryVector) root.getVector(2);
        VarBinaryVector values = (VarBinaryVector) root.getVector(3);
        ListVector headers = (ListVector) root.getVector(4);
        BigIntVector timestamps = (BigIntVector) root.getVector(5);
        StructVector each = (StructVector) headers.getDataVector();
        VarCharVector names = (VarCharVector) each.getChild("key");
        VarBinaryVector contents = (VarBinaryVector) each.getChild("value");
        String lastTopic = null;
        byte[] topic = new byte[0];
        int count = 0;
        int headerCount = 0;
        long bytes = 0;
        for (int n = first; n < records.size() && count < BATCH_ROWS && bytes < BATCH_BYTES; n++, count++) {
            ProducerRecord<byte[], byte[]> record = records.get(n);
            bytes += size(record);
            if (!record.topic().equals(lastTopic)) {
                lastTopic = record.topic();
                topic = lastTopic.getBytes(StandardCharsets.UTF_8);
            }
            topics.setSafe(count, topic);
            if (record.partition() != null) {
                partitions.setSafe(count, record.partition());
            }
            if (record.key() != null) {
                keys.setSafe(count, record.key());
            }
            if (record.value() != null) {
                values.setSafe(count, record.value());
            }
            if (record.timestamp() != null) {
                timestamps.setSafe(count, record.timestamp());
            }
            int inRecord = 0;
            headers.startNewValue(count);
            for (Header header : record.headers()) {
                each.setIndexDefined(headerCount);
                names.setSafe(headerCount, header.key().getBytes(StandardCharsets.UTF_8));
                if (header.value() != null) {
                    contents.setSafe(headerCount, header.value());
                }
                headerCount++;
                inRecord++;
            }
            headers.endValue(count, inRecord);
        }
        each.setValueCount(headerCount);
        names.setValueCount(headerCount);
        contents.setValueCount(headerCount);
        root.setRowCount(count);
        return first + count;
    }

    /** Reads the records of an Arrow stream. */
    static List<ConsumerRecord<byte[], byte[]>> read(InputStream in) throws Exception {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        ArrowStreamReader reader = new ArrowStreamReader(in, MEMORY);
        try {
            VectorSchemaRoot root = reader.getVectorSchemaRoot();
            while (reader.loadNextBatch()) {
                take(root, records);
            }
        } finally {
            reader.close(false);
        }
        return records;
    }

    private static void take(VectorSchemaRoot root, List<ConsumerRecord<byte[], byte[]>> records) {
        VarCharVector topics = (VarCharVector) root.getVector("topic");
        IntVector partitions = (IntVector) root.getVector("partition");
        BigIntVector offsets = (BigIntVector) root.getVector("offset");
        VarBinaryVector keys = (VarBinaryVector) root.getVector("key");
        VarBinaryVector values = (VarBinaryVector) root.getVector("value");
        ListVector headers = (ListVector) root.getVector("headers");
        BigIntVector timestamps = (BigIntVector) root.getVector("timestamp");
        VarCharVector targets = (VarCharVector) root.getVector("target");
        StructVector each = (StructVector) headers.getDataVector();
        VarCharVector names = (VarCharVector) each.getChild("key");
        VarBinaryVector contents = (VarBinaryVector) each.getChild("value");
        for (int row = 0; row < root.getRowCount(); row++) {
            Headers found = new RecordHeaders();
            if (!headers.isNull(row)) {
                for (int n = headers.getElementStartIndex(row); n < headers.getElementEndIndex(row); n++) {
                    found.add(new String(names.get(n), StandardCharsets.UTF_8), contents.get(n));
                }
            }
            String topic = new String(topics.get(row), StandardCharsets.UTF_8).intern();
            if (!values.isNull(row)) { // before it takes place in the heap
                LargeRecords.check(topic, partitions.get(row), offsets.get(row), values.getValueLength(row));
            }
            byte[] key = keys.get(row);
            byte[] value = values.get(row);
            boolean isTimed = !timestamps.isNull(row);
            ConsumerRecord<byte[], byte[]> record = new ConsumerRecord<>(
                topic, partitions.get(row), offsets.get(row),
                isTimed ? timestamps.get(row) : ConsumerRecord.NO_TIMESTAMP,
                isTimed ? TimestampType.CREATE_TIME : TimestampType.NO_TIMESTAMP_TYPE,
                length(key), length(value), key, value, found, Optional.empty());
            records.add(targets.isNull(row) ? record
                : new RoutedRecord(record, new String(targets.get(row), StandardCharsets.UTF_8).intern()));
        }
    }
}
