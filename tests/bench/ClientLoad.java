import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.exception.RemotingException;

/**
 * What `rocketbox bench` does, by the stock client: asynchronous sends, so many under way, then the same messages consumed.
 * Arguments: NAMESRV TOPIC MESSAGES SIZE WINDOW BATCH; batches are sent only. Prints one JSON object with bench's names.
 * Before the clock runs, as many messages again (50,000 at most) go to another topic, so that the code is compiled.
 */
public class ClientLoad {
    static final long PATIENCE_S = 300;
    static final OperatingSystemMXBean MACHINE = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    static final AtomicReference<String> FIRST_FAILURE = new AtomicReference<>("");
    static final StringBuilder SAID = new StringBuilder();

    public static void main(String[] args) {
        try {
            run(args);
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1); // the client's threads would go on
        }
    }

    static void run(String[] args) throws Exception {
        String namesrv = args[0], topic = args[1];
        int messages = Integer.parseInt(args[2]), size = Integer.parseInt(args[3]);
        int window = Integer.parseInt(args[4]), batch = Integer.parseInt(args[5]);
        DefaultMQProducer producer = new DefaultMQProducer("java_bench");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(60_000);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.start();
        byte[] body = "x".repeat(size).getBytes();
        for (String each : List.of(topic + "_warm", topic)) {
            makeTopic(producer, new Message(each, body));
        }
        produce(producer, topic + "_warm", body, Math.min(messages, 50_000), window, batch);
        long began = System.nanoTime(), cpu = MACHINE.getProcessCpuTime();
        long failed = produce(producer, topic, body, messages, window, batch);
        said("produce", messages - failed, System.nanoTime() - began, MACHINE.getProcessCpuTime() - cpu);
        producer.shutdown();
        if (batch == 1) {
            consume(namesrv, topic, messages - failed);
        }
        String peak = Files.readAllLines(Path.of("/proc/self/status")).stream()
            .filter(line -> line.startsWith("VmHWM")).findFirst().orElseThrow().replaceAll("\\D", "");
        String text = "{%s\"failed\": %d, \"first_failure\": \"%s\", \"rss_mb\": %.1f}%n";
        System.out.printf(Locale.ROOT, text, SAID, failed, FIRST_FAILURE, Long.parseLong(peak) / 1024.0);
    }

    /** Send once; a machine that is busy with the start of this program gets several tries. */
    static void makeTopic(DefaultMQProducer producer, Message message) throws Exception {
        for (int tries = 1; ; tries++) {
            try {
                producer.send(message);
                return;
            } catch (IllegalStateException | MQClientException | RemotingException error) {
                if (tries == 20) {
                    throw error;
                }
            }
        }
    }

    /** Send and wait for all answers; return how many messages failed. */
    static long produce(DefaultMQProducer producer, String topic, byte[] body, int messages, int window, int batch)
        throws Exception {
        Semaphore room = new Semaphore(window);
        AtomicLong failed = new AtomicLong();
        SendCallback answered = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                ended(result.getSendStatus() == SendStatus.SEND_OK ? null : result.getSendStatus().toString());
            }

            @Override
            public void onException(Throwable error) {
                ended(error.toString());
            }

            void ended(String failure) {
                if (failure != null) {
                    failed.addAndGet(batch);
                    FIRST_FAILURE.compareAndSet("", failure.replaceAll("[\"\\\\\\p{Cntrl}]", " "));
                }
                room.release();
            }
        };
        for (int sent = 0; sent < messages; sent += batch) {
            room.acquire();
            if (batch == 1) {
                producer.send(new Message(topic, body), answered);
                continue;
            }
            List<Message> lot = new ArrayList<>(batch);
            for (int number = 0; number < batch; number++) {
                lot.add(new Message(topic, body));
            }
            producer.send(lot, answered);
        }
        if (!room.tryAcquire(window, PATIENCE_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no answer within " + PATIENCE_S + " s");
        }
        return failed.get();
    }

    /** Consume so many messages; the clock runs from the first of them on. */
    static void consume(String namesrv, String topic, long wanted) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("java_bench_" + System.nanoTime());
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(64);
        consumer.setConsumeMessageBatchMaxSize(32);
        consumer.subscribe(topic, "*");
        AtomicLong seen = new AtomicLong(), began = new AtomicLong(), cpu = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (lot, context) -> {
            if (began.compareAndSet(0, System.nanoTime())) {
                cpu.set(MACHINE.getProcessCpuTime());
            }
            if (seen.addAndGet(lot.size()) >= wanted) {
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!done.await(PATIENCE_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException(seen + " of " + wanted + " messages within " + PATIENCE_S + " s");
        }
        said("consume", seen.get(), System.nanoTime() - began.get(), MACHINE.getProcessCpuTime() - cpu.get());
        consumer.shutdown();
    }

    static void said(String half, long messages, long took, long cpu) {
        String text = "\"%sd_per_s\": %.0f, \"%s_cpu\": %.3f, ";
        SAID.append(String.format(Locale.ROOT, text, half, messages * 1e9 / took, half, (double) cpu / took));
    }
}
