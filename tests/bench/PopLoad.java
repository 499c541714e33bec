import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.PopStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Consumes by POP with the stock 5.x client. Arguments: NAMESRV TOPIC MESSAGES MODE THREADS GROUP.
 * Modes: fill (store the messages), pull and push-pop (the push consumer by pulls and by POP), pop (32 messages a call,
 * each acknowledged by a call of its own), pop1 (one message a call). Prints one line of figures.
 */
public class PopLoad {
    static final int SIZE = 1024, QUEUES = 8;
    static final long PATIENCE_S = 180;

    public static void main(String[] args) {
        try {
            run(args[0], args[1], Integer.parseInt(args[2]), args[3], Integer.parseInt(args[4]), args[5]);
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1); // the client's threads would go on
        }
    }

    static void run(String namesrv, String topic, int messages, String mode, int threads, String group)
            throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(30_000);
        admin.setNamesrvAddr(namesrv);
        admin.start();
        BrokerData broker = admin.examineBrokerClusterInfo().getBrokerAddrTable().values().iterator().next();
        long[] took;
        switch (mode) {
            case "fill":
                admin.createAndUpdateTopicConfig(broker.selectBrokerAddr(),
                    new org.apache.rocketmq.common.TopicConfig(topic, QUEUES, QUEUES, 6));
                took = fill(namesrv, topic, messages);
                break;
            case "pull":
            case "push-pop":
                took = push(admin, broker, namesrv, topic, messages, group, mode.equals("push-pop"));
                break;
            default:
                took = pop(namesrv, broker, topic, messages, group, threads, mode.equals("pop1") ? 1 : 32);
        }
        System.out.printf(Locale.ROOT, "mode=%s messages=%d seconds=%.3f tps=%.0f p50_us=%d p99_us=%d%n", mode,
            messages, took[0] / 1e9, messages * 1e9 / took[0], took[1], took[2]);
    }

    static long[] fill(String namesrv, String topic, int messages) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("pop_bench");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(60_000);
        producer.start();
        byte[] body = "x".repeat(SIZE).getBytes();
        long began = System.nanoTime();
        for (int sent = 0; sent < messages; sent += 100) {
            List<Message> batch = new ArrayList<>();
            for (int i = 0; i < 100; i++) {
                batch.add(new Message(topic, body));
            }
            producer.send(batch);
        }
        return new long[] {System.nanoTime() - began, 0, 0};
    }

    static long[] push(DefaultMQAdminExt admin, BrokerData broker, String namesrv, String topic, int messages,
            String group, boolean pop) throws Exception {
        org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig config =
            new org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig();
        config.setGroupName(group);
        admin.createAndUpdateSubscriptionGroupConfig(broker.selectBrokerAddr(), config);
        if (pop) {
            admin.setMessageRequestMode(broker.selectBrokerAddr(), topic, group, MessageRequestMode.POP, 0, 10_000);
        }
        CountDownLatch left = new CountDownLatch(messages);
        AtomicLong first = new AtomicLong();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setClientRebalance(!pop);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (found, context) -> {
            first.compareAndSet(0, System.nanoTime());
            found.forEach(each -> left.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!left.await(PATIENCE_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException(left.getCount() + " messages did not come");
        }
        long took = System.nanoTime() - first.get();
        Thread.sleep(500); // its last acknowledgements
        return new long[] {took, 0, 0};
    }

    static long[] pop(String namesrv, BrokerData broker, String topic, int messages, String group, int threads,
            int most) throws Exception {
        DefaultMQPullConsumer client = new DefaultMQPullConsumer(group);
        client.setNamesrvAddr(namesrv);
        client.start();
        MQClientAPIImpl api = client.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory()
            .getMQClientAPIImpl();
        AtomicInteger got = new AtomicInteger();
        List<Long> calls = java.util.Collections.synchronizedList(new ArrayList<>());
        CountDownLatch running = new CountDownLatch(threads);
        AtomicLong last = new AtomicLong();
        long began = System.nanoTime();
        for (int i = 0; i < threads; i++) {
            new Thread(() -> {
                try {
                    while (got.get() < messages) {
                        long start = System.nanoTime();
                        List<MessageExt> found = popOnce(api, broker, topic, group, most);
                        calls.add((System.nanoTime() - start) / 1000);
                        ackAll(api, broker, topic, group, found);
                        if (!found.isEmpty()) {
                            got.addAndGet(found.size());
                            last.set(System.nanoTime());
                        }
                    }
                } catch (Exception error) {
                    error.printStackTrace();
                    System.exit(1);
                }
                running.countDown();
            }).start();
        }
        if (!running.await(PATIENCE_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException(got.get() + " of " + messages + " messages came");
        }
        List<Long> sorted = new ArrayList<>(calls);
        java.util.Collections.sort(sorted);
        return new long[] {last.get() - began, sorted.get(sorted.size() / 2), sorted.get(sorted.size() * 99 / 100)};
    }

    static List<MessageExt> popOnce(MQClientAPIImpl api, BrokerData broker, String topic, String group, int most)
            throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(topic);
        header.setQueueId(-1);
        header.setMaxMsgNums(most);
        header.setInvisibleTime(60_000);
        header.setPollTime(1000);
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(0);
        header.setExpType("TAG");
        header.setExp("*");
        header.setOrder(false);
        CountDownLatch done = new CountDownLatch(1);
        List<MessageExt> found = new ArrayList<>();
        api.popMessageAsync(broker.getBrokerName(), broker.selectBrokerAddr(), header, 30_000, new PopCallback() {
            @Override
            public void onSuccess(PopResult result) {
                if (result.getPopStatus() == PopStatus.FOUND) {
                    found.addAll(result.getMsgFoundList());
                }
                done.countDown();
            }

            @Override
            public void onException(Throwable error) {
                error.printStackTrace();
                done.countDown();
            }
        });
        done.await();
        return found;
    }

    static void ackAll(MQClientAPIImpl api, BrokerData broker, String topic, String group, List<MessageExt> found)
            throws Exception {
        Semaphore acks = new Semaphore(0);
        for (MessageExt each : found) {
            String[] handle = ExtraInfoUtil.split(each.getProperty("POP_CK"));
            AckMessageRequestHeader header = new AckMessageRequestHeader();
            header.setConsumerGroup(group);
            header.setTopic(ExtraInfoUtil.getRealTopic(handle, topic, group));
            header.setQueueId(ExtraInfoUtil.getQueueId(handle));
            header.setOffset(ExtraInfoUtil.getQueueOffset(handle));
            header.setExtraInfo(each.getProperty("POP_CK"));
            api.ackMessageAsync(broker.selectBrokerAddr(), 30_000, new AckCallback() {
                @Override
                public void onSuccess(AckResult result) {
                    acks.release();
                }

                @Override
                public void onException(Throwable error) {
                    error.printStackTrace();
                    acks.release();
                }
            }, header);
        }
        acks.acquire(found.size());
    }
}
