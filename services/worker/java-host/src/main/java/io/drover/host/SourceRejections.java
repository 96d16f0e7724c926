package io.drover.host;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.runtime.errors.ErrorReporter;
import org.apache.kafka.connect.runtime.errors.ProcessingContext;
import org.apache.kafka.connect.source.SourceRecord;

/** The records of a source that failed, for Drover's counts and its dead letter queue. */
final class SourceRejections implements ErrorReporter<SourceRecord> {
    private final BatchProducer producer;
    private final JsonConverter json = new JsonConverter();

    SourceRejections(BatchProducer producer) {
        this.producer = producer;
        json.configure(Map.of("schemas.enable", "false"), false);
    }

    @Override
    public Future<RecordMetadata> report(ProcessingContext<SourceRecord> context) {
        SourceRecord record = context.original();
        String step = context.executingClass() == null ? "" : " in " + context.executingClass().getName();
        producer.reject(new Transaction.Rejected(record.topic(), record.kafkaPartition(),
            bytes(record.topic(), record.keySchema(), record.key()),
            bytes(record.topic(), record.valueSchema(), record.value()), record.timestamp(),
            context.stage() + step + ": " + Failures.message(context.error()),
            "partition " + Json.MAPPER.valueToTree(record.sourcePartition()) + " offset "
                + Json.MAPPER.valueToTree(record.sourceOffset())));
        return CompletableFuture.completedFuture(null);
    }

    /** A key or a value as JSON; as text if it has no JSON. */
    private byte[] bytes(String topic, Schema schema, Object value) {
        if (value == null) {
            return null;
        }
        try {
            return json.fromConnectData(topic, schema, value);
        } catch (RuntimeException error) {
            return String.valueOf(value).getBytes(StandardCharsets.UTF_8);
        }
    }
}
