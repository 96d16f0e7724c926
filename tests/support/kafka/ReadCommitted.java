import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Prints the committed values of a partition, one a line, up to where it ends now. */
public final class ReadCommitted {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        TopicPartition partition =
                new TopicPartition(arguments[1], Integer.parseInt(arguments[2]));
        var text = new StringDeserializer();
        try (var consumer = new KafkaConsumer<>(settings, text, text)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    out.println(record.value());
                }
            }
        }
        out.flush();
    }
}
