package io.drover.host;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.function.Consumer;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.MockProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The producer of a source task: gathers whole transactions until Drover asks for a batch. The task
 * waits in commitTransaction while the gathered transactions are larger than a batch.
 */
final class BatchProducer extends MockProducer<byte[], byte[]> {
    /** Transactions that Drover stores together. */
    record Batch(long id, List<Transaction> transactions, List<ProducerRecord<byte[], byte[]>> rows,
            List<Transaction.Rejected> rejected, Transaction.Places places) {
        Map<String, String> offsets() {
            Map<String, String> found = new LinkedHashMap<>();
            transactions.forEach(each -> found.putAll(each.offsets));
            return found;
        }
    }

    /** Gets each transaction when it is committed, before its records are acknowledged. */
    Consumer<Transaction> onCommit = transaction -> {};
    private final Phase phase;
    private final Deque<Transaction> ready = new ArrayDeque<>();
    private final Deque<Batch> taken = new ArrayDeque<>();
    private final List<Callback> callbacks = new ArrayList<>();
    private Transaction open = new Transaction();
    private long readyBytes;
    private long bytesMax = 8 << 20;
    private long lastId;
    private boolean isClosed;

    BatchProducer(Phase phase) {
        super(true, null, new ByteArraySerializer(), new ByteArraySerializer());
        this.phase = phase;
    }

    @Override
    public void initTransactions() {}

    @Override
    public void beginTransaction() {}

    @Override
    public Future<RecordMetadata> send(ProducerRecord<byte[], byte[]> record, Callback callback) {
        open.add(record);
        callbacks.add(callback);
        phase.inSteps(); // of the next record
        return CompletableFuture.completedFuture(null);
    }

    /** Called before commitTransaction, on the task's thread. */
    void addOffsets(Map<String, String> offsets) {
        open.offsets.putAll(offsets);
    }

    /** Adds a record that failed; called on the task's thread. */
    void reject(Transaction.Rejected record) {
        open.reject(record);
    }

    /** Passes on records that failed where no transaction was open, as all records of a poll failed. */
    void flushRejected() {
        if (!open.rejected.isEmpty()) {
            Transaction done = open;
            open = new Transaction();
            add(done);
        }
    }

    @Override
    public void commitTransaction() {
        phase.idle();
        Transaction done = open;
        // the row's index takes the place of its offset, until Drover has stored it
        TopicPartition place = null;
        for (int row = 0; row < callbacks.size(); row++) {
            String topic = done.records.get(row).topic();
            if (place == null || !place.topic().equals(topic)) {
                place = new TopicPartition(topic, 0);
            }
            callbacks.get(row).onCompletion(new RecordMetadata(place, row, 0, -1, -1, -1), null);
        }
        callbacks.clear();
        open = new Transaction();
        onCommit.accept(done);
        add(done);
    }

    private synchronized void add(Transaction done) {
        ready.add(done);
        readyBytes += done.size;
        try {
            while (readyBytes >= bytesMax && !isClosed) {
                wait();
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public void abortTransaction() {
        phase.idle();
        open = new Transaction();
        callbacks.clear();
    }

    /** The next batch; null if there are no records and offsets. */
    synchronized Batch take(long recordsMax, long bytesMax) {
        this.bytesMax = bytesMax;
        if (ready.isEmpty()) {
            return null;
        }
        List<Transaction> transactions = new ArrayList<>();
        List<ProducerRecord<byte[], byte[]>> rows = new ArrayList<>();
        List<Transaction.Rejected> rejected = new ArrayList<>();
        long bytes = 0;
        while (!ready.isEmpty() && bytes < bytesMax && rows.size() + rejected.size() < recordsMax) {
            Transaction next = ready.remove();
            transactions.add(next);
            rows.addAll(next.records);
            rejected.addAll(next.rejected);
            bytes += next.size;
        }
        readyBytes -= bytes;
        Batch batch = new Batch(++lastId, transactions, rows, rejected, Transaction.Places.UNKNOWN);
        taken.add(batch);
        notifyAll();
        return batch;
    }

    /** A batch that was taken and is not durable yet. */
    synchronized Batch taken(long id) {
        return taken.stream().filter(each -> each.id() == id).findFirst()
            .orElseThrow(() -> new IllegalArgumentException("batch " + id + " is not held: it is durable already"));
    }

    /** The oldest batches were stored together. */
    synchronized void place(int count, Placement placement) {
        List<Batch> stored = new ArrayList<>();
        while (stored.size() < count && !taken.isEmpty()) {
            stored.add(taken.remove());
        }
        List<ProducerRecord<byte[], byte[]>> rows = new ArrayList<>();
        stored.forEach(each -> rows.addAll(each.rows()));
        Transaction.Places places = placement.of(rows);
        int first = rows.size();
        for (int n = stored.size() - 1; n >= 0; n--) {
            Batch each = stored.get(n);
            first -= each.rows().size();
            int start = first;
            taken.addFirst(new Batch(each.id(), each.transactions(), each.rows(), each.rejected(),
                row -> places.of(start + row)));
        }
    }

    /** The oldest batch, which has to be this one. */
    synchronized Batch oldest(long id) {
        Batch first = taken.peek();
        if (first == null || first.id() != id) {
            throw new IllegalArgumentException("batch " + id + " is not the oldest one");
        }
        return first;
    }

    /** The oldest batch is durable, and its records are acknowledged. */
    synchronized void removeOldest() {
        taken.remove();
        notifyAll();
    }

    /** Waits until every committed transaction is durable; returns whether it is, or the task ends. */
    synchronized boolean awaitDrained() throws InterruptedException {
        while (!isDrained() && !isClosed) {
            wait();
        }
        return isDrained();
    }

    /** Whether every committed transaction is durable. */
    synchronized boolean isDrained() {
        return ready.isEmpty() && taken.isEmpty();
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
