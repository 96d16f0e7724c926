package io.drover.host;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.channels.Channels;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.vector.BaseVariableWidthVector;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.BitVector;
import org.apache.arrow.vector.FieldVector;
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

/** The records that a step receives and returns, as Arrow streams. */
final class StepRows {
    private static final int BATCH_ROWS = 4_096;
    private static final ArrowType UTF8 = new ArrowType.Utf8();
    private static final ArrowType BINARY = new ArrowType.Binary();
    private static final Field HEADER = new Field("element", FieldType.nullable(new ArrowType.Struct()),
        List.of(field("key", UTF8), field("value", BINARY), field("typed", new ArrowType.Bool())));
    private static final Schema MADE = new Schema(List.of(
        field("row", new ArrowType.Int(32, true)), field("error", UTF8), field("matches", new ArrowType.Bool()),
        field("topic", UTF8), field("partition", new ArrowType.Int(32, true)),
        field("timestamp", new ArrowType.Int(64, true)), field("key", BINARY), field("value", BINARY),
        new Field("headers", FieldType.nullable(new ArrowType.List()), List.of(HEADER))));

    /** A header: its bytes as they are in the topic, or JSON with a schema. */
    record HeaderValue(String key, byte[] value, boolean isTyped) {}

    /** A record for a step; headerKey is that of the header for which a header converter is called. */
    record In(String topic, Integer partition, Long offset, Long timestamp, byte[] key, byte[] value,
        String headerKey, List<HeaderValue> headers) {}

    /** What a step made of the record of a row. */
    record Out(int row, String error, boolean matches, String topic, Integer partition, Long timestamp,
            byte[] key, byte[] value, List<HeaderValue> headers) {
        static Out failed(int row, String error) {
            return new Out(row, error, false, null, null, null, null, null, List.of());
        }

        static Out matching(int row, boolean matches) {
            return new Out(row, null, matches, null, null, null, null, null, List.of());
        }

        static Out of(int row, byte[] value) {
            return new Out(row, null, false, null, null, null, null, value, List.of());
        }
    }

    private StepRows() {}

    private static Field field(String name, ArrowType type) {
        return new Field(name, FieldType.nullable(type), null);
    }

    /** Reads the records of an Arrow stream. */
    static List<In> read(InputStream in) throws IOException {
        List<In> records = new ArrayList<>();
        ArrowStreamReader reader = new ArrowStreamReader(in, Rows.MEMORY);
        try {
            VectorSchemaRoot root = reader.getVectorSchemaRoot();
            while (reader.loadNextBatch()) {
                for (int row = 0; row < root.getRowCount(); row++) {
                    records.add(new In(text(root, "topic", row), integer(root, "partition", row),
                        whole(root, "offset", row), whole(root, "timestamp", row), bytes(root, "key", row),
                        bytes(root, "value", row), text(root, "header_key", row), headers(root, row)));
                }
            }
        } finally {
            reader.close(false);
        }
        return records;
    }

    private static byte[] bytes(VectorSchemaRoot root, String name, int row) {
        return ((VarBinaryVector) root.getVector(name)).get(row);
    }

    private static String text(VectorSchemaRoot root, String name, int row) {
        byte[] found = ((VarCharVector) root.getVector(name)).get(row);
        return found == null ? null : new String(found, StandardCharsets.UTF_8);
    }

    private static Long whole(VectorSchemaRoot root, String name, int row) {
        return ((BigIntVector) root.getVector(name)).getObject(row);
    }

    private static Integer integer(VectorSchemaRoot root, String name, int row) {
        return ((IntVector) root.getVector(name)).getObject(row);
    }

    private static List<HeaderValue> headers(VectorSchemaRoot root, int row) {
        ListVector headers = (ListVector) root.getVector("headers");
        if (headers.isNull(row)) {
            return List.of();
        }
        StructVector each = (StructVector) headers.getDataVector();
        VarCharVector names = (VarCharVector) each.getChild("key");
        VarBinaryVector values = (VarBinaryVector) each.getChild("value");
        BitVector typed = (BitVector) each.getChild("typed");
        List<HeaderValue> found = new ArrayList<>();
        for (int n = headers.getElementStartIndex(row); n < headers.getElementEndIndex(row); n++) {
            found.add(new HeaderValue(new String(names.get(n), StandardCharsets.UTF_8), values.get(n), typed.get(n) == 1));
        }
        return found;
    }

    /** Writes what a step made as an Arrow stream. */
    static void write(List<Out> made, OutputStream out) throws IOException {
        try (VectorSchemaRoot root = VectorSchemaRoot.create(MADE, Rows.MEMORY);
                ArrowStreamWriter writer = new ArrowStreamWriter(root, null, Channels.newChannel(new Rows.Kept(out)))) {
            writer.start();
            for (int first = 0; first < made.size(); first += BATCH_ROWS) {
                root.allocateNew();
                fill(root, made.subList(first, Math.min(first + BATCH_ROWS, made.size())));
                writer.writeBatch();
                root.clear();
            }
            writer.end();
        }
    }

    private static void fill(VectorSchemaRoot root, List<Out> made) {
        ListVector headers = (ListVector) root.getVector("headers");
        int headerCount = 0;
        for (int row = 0; row < made.size(); row++) {
            Out each = made.get(row);
            ((IntVector) root.getVector("row")).setSafe(row, each.row());
            ((BitVector) root.getVector("matches")).setSafe(row, each.matches() ? 1 : 0);
            set(root.getVector("error"), row, utf8(each.error()));
            set(root.getVector("topic"), row, utf8(each.topic()));
            set(root.getVector("key"), row, each.key());
            set(root.getVector("value"), row, each.value());
            if (each.partition() != null) {
                ((IntVector) root.getVector("partition")).setSafe(row, each.partition());
            }
            if (each.timestamp() != null) {
                ((BigIntVector) root.getVector("timestamp")).setSafe(row, each.timestamp());
            }
            headers.startNewValue(row);
            for (HeaderValue header : each.headers()) {
                fillHeader((StructVector) headers.getDataVector(), headerCount++, header);
            }
            headers.endValue(row, each.headers().size());
        }
        StructVector data = (StructVector) headers.getDataVector();
        data.setValueCount(headerCount);
        root.setRowCount(made.size());
    }

    private static void fillHeader(StructVector data, int place, HeaderValue header) {
        data.setIndexDefined(place);
        set((FieldVector) data.getChild("key"), place, utf8(header.key()));
        set((FieldVector) data.getChild("value"), place, header.value());
        ((BitVector) data.getChild("typed")).setSafe(place, header.isTyped() ? 1 : 0);
    }

    private static byte[] utf8(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    private static void set(FieldVector vector, int row, byte[] bytes) {
        if (bytes != null) {
            ((BaseVariableWidthVector) vector).setSafe(row, bytes);
        }
    }
}
