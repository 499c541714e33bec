import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * Sends or consumes with the official gRPC client. Arguments: ENDPOINT TOPIC MODE THREADS WARM_S RUN_S GROUP.
 * Modes: send (each thread waits for its answer), receive (32 messages a call, 4 with
 * more than 16 threads, each acknowledged by a call of its own).
 * Prints one line of figures.
 */
public class GrpcLoad {
    static final int SIZE = 1024, MOST = 4_000_000;
    static final int[] took = new int[MOST];
    static final AtomicInteger done = new AtomicInteger(), all = new AtomicInteger();
    static final AtomicBoolean counting = new AtomicBoolean(), over = new AtomicBoolean();

    interface Step {
        int run() throws Exception; // messages done
    }

    public static void main(String[] args) {
        try {
            run(args[0], args[1], args[2], Integer.parseInt(args[3]), Integer.parseInt(args[4]),
                Integer.parseInt(args[5]), args[6]);
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1); // the client's threads would go on
        }
    }

    static void run(String endpoint, String topic, String mode, int threads, int warm, int seconds, String group)
            throws Exception {
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        ClientConfiguration where = ClientConfiguration.newBuilder().setEndpoints(endpoint).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(10)).build();
        int batch = threads > 16 ? 4 : 32;
        Step step = mode.equals("send") ? sending(provider, where, topic)
            : receiving(provider, where, topic, group, batch);
        CountDownLatch ended = new CountDownLatch(threads);
        for (int i = 0; i < threads; i++) {
            Thread thread = new Thread(() -> work(step, ended));
            thread.setDaemon(true);
            thread.start();
        }
        Thread.sleep(warm * 1000L);
        long began = System.nanoTime();
        counting.set(true);
        Thread.sleep(seconds * 1000L);
        int count = Math.min(done.get(), MOST);
        double elapsed = (System.nanoTime() - began) / 1e9;
        over.set(true);
        int[] sorted = Arrays.copyOf(took, count);
        Arrays.sort(sorted);
        System.out.printf(Locale.ROOT, "tps=%.1f p50_us=%d p99_us=%d count=%d all=%d%n", count / elapsed,
            count == 0 ? 0 : sorted[count / 2], count == 0 ? 0 : sorted[(int) (count * 0.99)], count, all.get());
    }

    static void work(Step step, CountDownLatch ended) {
        while (!over.get()) {
            long began = System.nanoTime();
            int count;
            try {
                count = step.run();
            } catch (Exception error) {
                System.err.println(error);
                continue;
            }
            all.addAndGet(count);
            int micros = (int) ((System.nanoTime() - began) / 1000);
            for (int i = 0; i < count && counting.get(); i++) {
                int place = done.getAndIncrement();
                if (place < MOST) {
                    took[place] = micros;
                }
            }
        }
        ended.countDown();
    }

    static Step sending(ClientServiceProvider provider, ClientConfiguration where, String topic) throws Exception {
        Producer producer = provider.newProducerBuilder().setClientConfiguration(where).setTopics(topic).build();
        byte[] body = new byte[SIZE];
        return () -> {
            Message message = provider.newMessageBuilder().setTopic(topic).setTag("load").setBody(body).build();
            producer.send(message);
            return 1;
        };
    }

    static Step receiving(ClientServiceProvider provider, ClientConfiguration where, String topic, String group,
            int batch) throws Exception {
        SimpleConsumer consumer = provider.newSimpleConsumerBuilder().setClientConfiguration(where)
            .setConsumerGroup(group).setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL)).build();
        return () -> {
            List<MessageView> found = consumer.receive(batch, Duration.ofSeconds(60));
            for (MessageView each : found) {
                consumer.ack(each);
            }
            return found.size();
        };
    }
}
