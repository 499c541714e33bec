package org.apache.rocketmq.test.base;

import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.attribute.CQType;
import org.apache.rocketmq.common.attribute.TopicMessageType;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.test.client.rmq.RMQNormalConsumer;
import org.apache.rocketmq.test.client.rmq.RMQNormalProducer;
import org.apache.rocketmq.test.client.rmq.RMQTransactionalProducer;
import org.apache.rocketmq.test.clientinterface.MQConsumer;
import org.apache.rocketmq.test.clientinterface.MQProducer;
import org.apache.rocketmq.test.factory.ConsumerFactory;
import org.apache.rocketmq.test.listener.AbstractListener;
import org.apache.rocketmq.test.util.MQAdminTestUtils;
import org.apache.rocketmq.test.util.MQRandomUtils;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.admin.MQAdminExt;

/**
 * In the place of Apache's class of this name, which starts brokers in its own process: these run elsewhere.
 * Properties: namesrv, cluster, brokers (NAME=HOST:PORT, with commas between).
 */
public class BaseConf {
    public static final String NAMESRV_ADDR = System.getProperty("namesrv");
    protected static final String CLUSTER_NAME = System.getProperty("cluster");
    protected static final String BROKER1_NAME;
    protected static final String BROKER2_NAME;
    protected static final String BROKER3_NAME;
    protected static final int BROKER_NUM;
    protected static final int WAIT_TIME = 5;
    protected static final int CONSUME_TIME = 2 * 60 * 1000;
    protected static final int QUEUE_NUMBERS = 8;
    protected static final RemoteBroker brokerController1;
    protected static final RemoteBroker brokerController2;
    protected static final RemoteBroker brokerController3;
    protected static final List<RemoteBroker> brokerControllerList = new ArrayList<>();
    protected static List<Object> mqClients = new ArrayList<>();

    static {
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        for (String each : System.getProperty("brokers").split(",")) {
            String[] parts = each.split("=");
            brokerControllerList.add(new RemoteBroker(parts[0], CLUSTER_NAME, parts[1]));
        }
        BROKER_NUM = brokerControllerList.size();
        brokerController1 = broker(0);
        brokerController2 = broker(1);
        brokerController3 = broker(2);
        BROKER1_NAME = brokerController1.getBrokerConfig().getBrokerName();
        BROKER2_NAME = brokerController2.getBrokerConfig().getBrokerName();
        BROKER3_NAME = brokerController3.getBrokerConfig().getBrokerName();
        try {
            MQAdminTestUtils.startAdmin(NAMESRV_ADDR);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static RemoteBroker broker(int number) {
        return brokerControllerList.get(Math.min(number, brokerControllerList.size() - 1));
    }

    public static String initTopic() {
        return initTopicWithName(MQRandomUtils.getRandomTopic());
    }

    public static String initTopic(TopicMessageType type) {
        return initTopicOnSampleTopicBroker(CLUSTER_NAME, type);
    }

    public static String initTopicWithName(String topic) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, CLUSTER_NAME, CQType.SimpleCQ);
        return topic;
    }

    public static String initTopicOnSampleTopicBroker(String where) {
        return initTopicOnSampleTopicBroker(where, TopicMessageType.NORMAL);
    }

    public static String initTopicOnSampleTopicBroker(String where, TopicMessageType type) {
        String topic = MQRandomUtils.getRandomTopic();
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, where, QUEUE_NUMBERS, CQType.SimpleCQ, type);
        return topic;
    }

    public static String initConsumerGroup() {
        return initConsumerGroup(MQRandomUtils.getRandomConsumerGroup());
    }

    public static String initConsumerGroup(String group) {
        MQAdminTestUtils.createSub(NAMESRV_ADDR, CLUSTER_NAME, group);
        return group;
    }

    public static DefaultMQAdminExt getAdmin(String namesrv) {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(3000);
        admin.setNamesrvAddr(namesrv);
        return kept(admin);
    }

    public static RMQNormalProducer getProducer(String namesrv, String topic) {
        return kept(new RMQNormalProducer(namesrv, topic, false));
    }

    public static RMQTransactionalProducer getTransactionalProducer(String namesrv, String topic,
            TransactionListener listener) {
        return kept(new RMQTransactionalProducer(namesrv, topic, false, listener));
    }

    public static RMQNormalConsumer getConsumer(String namesrv, String topic, String tags, AbstractListener listener) {
        return getConsumer(namesrv, initConsumerGroup(), topic, tags, listener);
    }

    public static RMQNormalConsumer getConsumer(String namesrv, String group, String topic, String tags,
            AbstractListener listener) {
        return kept(ConsumerFactory.getRMQNormalConsumer(namesrv, group, topic, tags, listener, false));
    }

    private static <T> T kept(T client) {
        mqClients.add(client);
        return client;
    }

    public static void shutdown() {
        List<Object> ended = mqClients;
        mqClients = new ArrayList<>();
        for (Object each : ended) {
            if (each instanceof MQProducer) {
                ((MQProducer) each).shutdown();
            } else if (each instanceof MQConsumer) {
                ((MQConsumer) each).shutdown();
            } else if (each instanceof MQAdminExt) {
                ((MQAdminExt) each).shutdown();
            }
        }
    }
}
