package io.drover.host;

import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;
import org.apache.kafka.connect.source.SourceTaskContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A plugin's source task whose acknowledgements wait until Drover has stored the records: while a batch is
 * stored, the loop already polls the next one.
 */
final class HostedSourceTask extends SourceTask {
    private static final Logger LOG = LoggerFactory.getLogger(HostedSourceTask.class);
    /** The shortest time after which a busy task waits until all its records are durable, for commit(). */
    private static final long COMMIT_MS = 2_000;

    private final SourceTask plugin;
    private final BatchProducer producer;
    private final Phase phase;
    private final boolean acknowledges;
    private final boolean commits;
    private final long commitNanos;
    private long committedNanos = System.nanoTime();
    /** Whether commit() was left out after records, as not all of them were durable. */
    private volatile boolean isCommitSkipped;
    /** One call of commit() at a time. */
    private final Object committing = new Object();
    /** The transaction that was committed last; null after its commit(). Used on the task's thread. */
    private Transaction current;

    HostedSourceTask(SourceTask plugin, BatchProducer producer, Phase phase, Map<String, String> config) {
        this.plugin = plugin;
        this.producer = producer;
        this.phase = phase;
        acknowledges = overrides("commitRecord", SourceRecord.class, RecordMetadata.class)
            || overrides("commitRecord", SourceRecord.class);
        commits = overrides("commit");
        // with long transactions the wait is long: most of the time the task polls
        long transactionMs = "interval".equalsIgnoreCase(config.getOrDefault("transaction.boundary", "").trim())
            ? Long.parseLong(config.getOrDefault("transaction.boundary.interval.ms", "60000").trim()) : 0;
        commitNanos = TimeUnit.MILLISECONDS.toNanos(Math.max(COMMIT_MS, 4 * transactionMs));
    }

    private boolean overrides(String method, Class<?>... parameters) {
        try {
            return plugin.getClass().getMethod(method, parameters).getDeclaringClass() != SourceTask.class;
        } catch (NoSuchMethodException removed) {
            return false;
        } catch (LinkageError missing) { // another method of the class names a class that is not there
            return true;
        }
    }

    /** Whether the plugin has a commitRecord. */
    boolean acknowledges() {
        return acknowledges;
    }

    void committed(Transaction transaction) {
        current = transaction;
    }

    @Override
    public String version() {
        return plugin.version();
    }

    @Override
    public void initialize(SourceTaskContext context) {
        plugin.initialize(context);
    }

    @Override
    public void start(Map<String, String> properties) {
        run("start", () -> plugin.start(properties));
    }

    @Override
    public List<SourceRecord> poll() throws InterruptedException {
        List<SourceRecord> records = on("poll", plugin::poll);
        if (records != null && !records.isEmpty()) {
            records.forEach(LargeRecords::check);
            phase.inSteps();
        }
        return records;
    }

    @Override
    public void commitRecord(SourceRecord record, RecordMetadata metadata) {
        if (acknowledges && current != null) {
            current.acknowledge(record, metadata == null ? -1 : (int) metadata.offset());
        }
    }

    @Override
    public void commit() throws InterruptedException {
        producer.flushRejected();
        Transaction done = current;
        current = null;
        if (done != null && done.complete()) {
            on("commitRecord", () -> {
                acknowledge(done);
                return null;
            });
        }
        // commit() may acknowledge all records that poll() has returned, so all of them have to be durable
        if (!commits) {
            return;
        }
        isCommitSkipped = !(isCommitDue() ? producer.awaitDrained() : producer.isDrained());
        if (!isCommitSkipped) {
            committedNanos = System.nanoTime();
            on("commit", () -> {
                callCommit();
                return null;
            });
        }
    }

    private void callCommit() throws InterruptedException {
        synchronized (committing) {
            plugin.commit();
        }
    }

    /** Whether a commit() that was left out is due while poll() waits for data: all records are durable now. */
    boolean isCommitOverdue() {
        return isCommitSkipped && phase.name().equals("poll") && phase.sinceMs() >= COMMIT_MS && producer.isDrained();
    }

    /**
     * Makes up for a commit() that was left out, on another thread than poll(), as Kafka Connect does for
     * tasks without exactly-once support. An error is logged, as on the thread of the task.
     */
    void commitOverdue() throws InterruptedException {
        isCommitSkipped = false;
        try {
            callCommit();
        } catch (InterruptedException ended) {
            throw ended;
        } catch (Exception | LinkageError | StackOverflowError | AssertionError error) {
            LOG.error("commit() failed", error);
        }
    }

    private boolean isCommitDue() {
        return System.nanoTime() - committedNanos > commitNanos;
    }

    /**
     * Passes on the acknowledgements of a transaction that is durable. An error of the plugin is
     * logged, once for all records: they are stored, and Kafka Connect's tasks continue too.
     */
    void acknowledge(Transaction transaction) throws InterruptedException {
        int failedCount = 0;
        Throwable first = null;
        for (Transaction.Acknowledgement each : transaction.acknowledgements()) {
            try {
                plugin.commitRecord(each.source(), transaction.metadata(each.row()));
            } catch (InterruptedException ended) {
                throw ended;
            } catch (Exception | LinkageError | StackOverflowError | AssertionError error) {
                failedCount++;
                first = first == null ? error : first;
            }
        }
        if (first != null) {
            LOG.error("commitRecord() failed for {} of {} stored or dropped records; the first error:",
                failedCount, transaction.acknowledgements().size(), first);
        }
    }

    @Override
    public void stop() {
        run("stop", plugin::stop);
    }

    private void run(String what, Runnable call) {
        try {
            on(what, () -> {
                call.run();
                return null;
            });
        } catch (InterruptedException never) {
            throw new ConnectException(never);
        }
    }

    private <T> T on(String what, Callable<T> call) throws InterruptedException {
        try {
            return phase.in(what, call);
        } catch (RuntimeException | InterruptedException error) {
            throw error;
        } catch (Exception error) {
            throw new ConnectException(error);
        }
    }
}
