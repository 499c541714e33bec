package org.apache.rocketmq.test.base;

import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.attribute.CQType;
import org.apache.rocketmq.common.attribute.TopicMessageType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.test.util.MQAdminTestUtils;

/**
 * In the place of Apache's class of this name, which starts brokers in its own process: these run elsewhere.
 * Properties: namesrvPort, cluster, brokers (NAME=HOST:PORT, with commas between).
 */
public class IntegrationTestBase {
    private static final int WAIT_S = 30;
    private static final String[] BROKERS = System.getProperty("brokers").split(",");
    private static int named = 0;

    public static RemoteNamesrv createAndStartNamesrv() {
        return new RemoteNamesrv(Integer.getInteger("namesrvPort"));
    }

    public static RemoteBroker createAndStartBroker(String namesrv) {
        String[] parts = BROKERS[named++].split("=");
        return new RemoteBroker(parts[0], System.getProperty("cluster"), parts[1]);
    }

    public static RemoteBroker createAndStartBroker(MessageStoreConfig store, BrokerConfig config) {
        throw RemoteBroker.inside("a start with another configuration");
    }

    public static void initMQAdmin(String namesrv) {
        try {
            MQAdminTestUtils.startAdmin(namesrv);
        } catch (MQClientException error) {
            throw new IllegalStateException(error);
        }
    }

    public static boolean initTopic(String topic, String namesrv, String where, int queues, CQType queueType,
            TopicMessageType messageType) {
        Map<String, String> attributes = new HashMap<>();
        if (queueType != CQType.SimpleCQ) {
            attributes.put("+queue.type", queueType.toString());
        }
        if (messageType != TopicMessageType.NORMAL) {
            attributes.put("+message.type", messageType.toString());
        }
        return MQAdminTestUtils.createTopic(namesrv, where, topic, queues, attributes, WAIT_S);
    }

    public static boolean initTopic(String topic, String namesrv, String where, int queues, CQType queueType) {
        return initTopic(topic, namesrv, where, queues, queueType, TopicMessageType.NORMAL);
    }

    public static boolean initTopic(String topic, String namesrv, String where, CQType queueType) {
        return initTopic(topic, namesrv, where, BaseConf.QUEUE_NUMBERS, queueType);
    }

    public static boolean initTopic(String topic, String namesrv, String where, TopicMessageType messageType) {
        return initTopic(topic, namesrv, where, BaseConf.QUEUE_NUMBERS, CQType.SimpleCQ, messageType);
    }
}
