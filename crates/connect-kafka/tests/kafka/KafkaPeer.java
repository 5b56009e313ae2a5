import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** What Apache Kafka's own Java client does, for comparison with ours. Run as a source file. */
public final class KafkaPeer {
    public static void main(String[] args) throws Exception {
        Properties servers = new Properties();
        servers.put("bootstrap.servers", args[1]);
        switch (args[0]) {
            case "produce" -> produce(servers, args[2]);
            case "consume" -> consume(servers, args[2]);
            case "producers" -> producers(servers, args[2]);
            case "allow" -> allow(servers, args[2], args[3], args[4], args[5]);
            case "scram" -> scram(servers, args[2], args[3]);
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    /** Each line of the input is a key in hexadecimal; prints the partition that the record went to. */
    private static void produce(Properties config, String topic) throws Exception {
        config.put("key.serializer", ByteArraySerializer.class);
        config.put("value.serializer", ByteArraySerializer.class);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config)) {
            BufferedReader keys = new BufferedReader(new InputStreamReader(System.in));
            for (String line = keys.readLine(); line != null; line = keys.readLine()) {
                byte[] key = HexFormat.of().parseHex(line);
                sent.add(producer.send(new ProducerRecord<>(topic, key, new byte[0])));
            }
            producer.flush();
            for (Future<RecordMetadata> record : sent) {
                System.out.println(record.get().partition());
            }
        }
    }

    /** Prints partition, offset, key and value (hexadecimal, a dash is null) of each committed record. */
    private static void consume(Properties config, String topic) {
        config.put("key.deserializer", ByteArrayDeserializer.class);
        config.put("value.deserializer", ByteArrayDeserializer.class);
        config.put("isolation.level", "read_committed");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config)) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                    .map(info -> new TopicPartition(topic, info.partition())).toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(at -> consumer.position(at) < ends.get(at))) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    System.out.println(record.partition() + " " + record.offset() + " " + hex(record.key()) + " "
                            + hex(record.value()));
                }
            }
        }
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? "-" : HexFormat.of().formatHex(bytes);
    }

    /** Prints the id of each idempotent producer that partition 0 knows. */
    private static void producers(Properties config, String topic) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = Admin.create(config)) {
            admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers()
                    .forEach(state -> System.out.println(state.producerId()));
        }
    }

    private static void allow(Properties config, String principal, String kind, String name, String operations)
            throws Exception {
        ResourceType type = ResourceType.fromString(kind);
        PatternType pattern = name.endsWith("*") && name.length() > 1 ? PatternType.PREFIXED : PatternType.LITERAL;
        String resource = pattern == PatternType.PREFIXED ? name.substring(0, name.length() - 1) : name;
        Collection<AclBinding> bindings = new ArrayList<>();
        for (String operation : operations.split(",")) {
            bindings.add(new AclBinding(new ResourcePattern(type, resource, pattern), new AccessControlEntry(
                    principal, "*", AclOperation.fromString(operation), AclPermissionType.ALLOW)));
        }
        try (Admin admin = Admin.create(config)) {
            admin.createAcls(bindings).all().get();
        }
    }

    private static void scram(Properties config, String user, String password) throws Exception {
        try (Admin admin = Admin.create(config)) {
            admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(user,
                    new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), password))).all().get();
        }
    }
}
