package org.apache.rocketmq.test.base;

import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.common.attribute.CQType;
import org.apache.rocketmq.common.attribute.TopicMessageType;
import org.apache.rocketmq.test.util.MQAdminTestUtils;

/** Topics of tests, made over the wire. */
public class IntegrationTestBase {
    static final int WAIT_S = 30;

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

    public static boolean initTopic(String topic, String namesrv, String where, CQType queueType) {
        return initTopic(topic, namesrv, where, BaseConf.QUEUE_NUMBERS, queueType, TopicMessageType.NORMAL);
    }
}
