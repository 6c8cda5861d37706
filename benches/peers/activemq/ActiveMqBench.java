import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.Session;
import java.io.File;
import java.lang.management.ManagementFactory;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ActiveMQPrefetchPolicy;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.store.kahadb.KahaDBPersistenceAdapter;

/**
 * ActiveMQ's part of the Kafka paper's experiment: a broker, one producer, one consumer.
 *
 * <pre>
 * ActiveMqBench broker FOLDER PORT                       runs until it is killed
 * ActiveMqBench produce|consume PORT MESSAGES VALUE_BYTES PREFETCH
 * </pre>
 *
 * The latter two print {@code messages=N seconds=S cpu_seconds=C}.
 */
public final class ActiveMqBench {
  private static final String QUEUE = "paper";

  public static void main(String[] arguments) throws Exception {
    if (arguments[0].equals("broker")) {
      runBroker(new File(arguments[1]), Integer.parseInt(arguments[2]));
      return;
    }
    int port = Integer.parseInt(arguments[1]);
    int messageCount = Integer.parseInt(arguments[2]);
    int valueBytes = Integer.parseInt(arguments[3]);
    int prefetch = Integer.parseInt(arguments[4]);

    var factory = new ActiveMQConnectionFactory("tcp://127.0.0.1:" + port);
    factory.setUseAsyncSend(true);
    factory.setProducerWindowSize(1 << 20);
    var policy = new ActiveMQPrefetchPolicy();
    policy.setAll(prefetch);
    factory.setPrefetchPolicy(policy);
    var connection = factory.createConnection();
    connection.start();
    var session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    long began = System.nanoTime();
    long cpu = cpuNanos();
    switch (arguments[0]) {
      case "produce" -> produce(session, messageCount, valueBytes);
      case "consume" -> consume(session, messageCount);
      default -> throw new IllegalArgumentException(arguments[0]);
    }
    // Closing waits until the broker has everything that was sent.
    session.close();
    double seconds = (System.nanoTime() - began) / 1e9;
    double cpuSeconds = (cpuNanos() - cpu) / 1e9;
    System.out.printf("messages=%d seconds=%.6f cpu_seconds=%.6f%n", messageCount, seconds, cpuSeconds);
    connection.close();
    System.exit(0);
  }

  private static void runBroker(File folder, int port) throws Exception {
    var broker = new BrokerService();
    broker.setDataDirectoryFile(folder);
    broker.setUseJmx(false);
    var store = new KahaDBPersistenceAdapter();
    store.setDirectory(new File(folder, "kahadb"));
    store.setJournalDiskSyncStrategy("periodic");
    broker.setPersistenceAdapter(store);
    broker.addConnector("tcp://127.0.0.1:" + port);
    broker.start();
    broker.waitUntilStopped();
  }

  private static void produce(Session session, int messageCount, int valueBytes) throws JMSException {
    var producer = session.createProducer(session.createQueue(QUEUE));
    producer.setDeliveryMode(DeliveryMode.PERSISTENT);
    byte[] value = new byte[valueBytes];
    for (int i = 0; i < messageCount; i++) {
      var message = session.createBytesMessage();
      message.writeBytes(value);
      producer.send(message);
    }
  }

  private static void consume(Session session, int messageCount) throws JMSException {
    var consumer = session.createConsumer(session.createQueue(QUEUE));
    for (int i = 0; i < messageCount; i++) {
      if (consumer.receive(60_000) == null) {
        throw new IllegalStateException("no message after " + i + " of " + messageCount);
      }
    }
  }

  private static long cpuNanos() {
    return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
  }
}
