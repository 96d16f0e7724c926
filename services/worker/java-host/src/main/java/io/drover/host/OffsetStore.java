package io.drover.host;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.function.Consumer;
import org.apache.kafka.connect.runtime.WorkerConfig;
import org.apache.kafka.connect.storage.OffsetBackingStore;
import org.apache.kafka.connect.util.Callback;

/**
 * The source offsets of a connector: those that Drover committed, and those written since. Partitions
 * are compared as JSON, because committed ones may have their fields in another order. The offset of
 * the partition null, which plugins without positions use, is not committed.
 */
final class OffsetStore implements OffsetBackingStore {
    private final Map<JsonNode, byte[]> known = new HashMap<>();
    private final Consumer<Map<String, String>> written;

    /**
     * @param committed pairs of a partition and an offset, as JSON
     * @param written gets the offsets that a task writes, as JSON texts by partition; null removes one
     */
    OffsetStore(JsonNode committed, Consumer<Map<String, String>> written) {
        this.written = written;
        replace(committed);
    }

    /** Forgets the known offsets, and takes these. */
    synchronized void replace(JsonNode committed) {
        known.clear();
        for (JsonNode pair : committed) {
            known.put(pair.get(0), pair.get(1).toString().getBytes(StandardCharsets.UTF_8));
        }
    }

    @Override
    public void start() {}

    @Override
    public void stop() {}

    @Override
    public void configure(WorkerConfig config) {}

    @Override
    public synchronized Future<Map<ByteBuffer, ByteBuffer>> get(Collection<ByteBuffer> keys) {
        Map<ByteBuffer, ByteBuffer> found = new HashMap<>();
        for (ByteBuffer key : keys) {
            byte[] offset = known.get(partition(key));
            found.put(key, offset == null ? null : ByteBuffer.wrap(offset));
        }
        return CompletableFuture.completedFuture(found);
    }

    @Override
    public Future<Void> set(Map<ByteBuffer, ByteBuffer> values, Callback<Void> callback) {
        Map<String, String> texts = new LinkedHashMap<>();
        synchronized (this) {
            values.forEach((key, value) -> {
                JsonNode partition = partition(key);
                byte[] offset = value == null ? null : bytes(value);
                if (offset == null) {
                    known.remove(partition);
                } else {
                    known.put(partition, offset);
                }
                if (!partition.isNull()) {
                    texts.put(partition.toString(), offset == null ? null : new String(offset, StandardCharsets.UTF_8));
                }
            });
        }
        written.accept(texts);
        callback.onCompletion(null, null);
        return CompletableFuture.completedFuture(null);
    }

    @Override
    @SuppressWarnings("unchecked")
    public synchronized Set<Map<String, Object>> connectorPartitions(String connector) {
        Set<Map<String, Object>> found = new HashSet<>();
        known.keySet().forEach(each -> found.add(Json.MAPPER.convertValue(each, Map.class)));
        return found;
    }

    /** A key is the JSON of ["connector", {partition}]. */
    private static JsonNode partition(ByteBuffer key) {
        try {
            return Json.MAPPER.readTree(bytes(key)).get(1);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] found = new byte[buffer.remaining()];
        buffer.duplicate().get(found);
        return found;
    }
}
