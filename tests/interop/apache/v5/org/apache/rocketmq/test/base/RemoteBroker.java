package org.apache.rocketmq.test.base;

import java.util.Set;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.header.QueryConsumerOffsetRequestHeader;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.test.client.rmq.RMQPopClient;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** A broker in another process, in the place of Apache's BrokerController: what tests ask of it goes over the wire. */
public class RemoteBroker {
    private static final long WAIT_MS = 10_000;
    private static DefaultMQAdminExt admin;
    private final BrokerConfig config = new BrokerConfig(); // what tests set here reaches nobody
    private final String address;

    RemoteBroker(String name, String cluster, String address) {
        config.setBrokerName(name);
        config.setBrokerClusterName(cluster);
        this.address = address;
    }

    /** Returns what to throw for parts and switches that only code in the broker's process can reach. */
    static UnsupportedOperationException inside(String what) {
        return new UnsupportedOperationException("inside the broker's process: " + what);
    }

    private static synchronized DefaultMQAdminExt admin() throws Exception {
        if (admin == null) {
            DefaultMQAdminExt started = new DefaultMQAdminExt();
            started.setInstanceName("remote" + System.nanoTime());
            started.setNamesrvAddr(BaseConf.NAMESRV_ADDR);
            started.start();
            admin = started;
        }
        return admin;
    }

    private static MQClientAPIImpl wire() throws Exception {
        return admin().getDefaultMQAdminExtImpl().getMqClientInstance().getMQClientAPIImpl();
    }

    private interface Asked<T> {
        T now() throws Exception;
    }

    private static <T> T ask(Asked<T> asked) {
        try {
            return asked.now();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    public BrokerConfig getBrokerConfig() {
        return config;
    }

    public String getBrokerAddr() {
        return address;
    }

    public Wakes getBrokerOuterAPI() {
        return new Wakes();
    }

    public Wakes getTopicQueueMappingCleanService() {
        return new Wakes();
    }

    public void registerBrokerAll(boolean checkOrder, boolean oneway, boolean force) { // brokers do it by themselves
    }

    public void shutdown() {
        throw inside("its end and a start with another configuration");
    }

    public MessageStoreConfig getMessageStoreConfig() {
        throw inside("its configuration");
    }

    public ConsumerFilterManager getConsumerFilterManager() {
        throw inside("its filters");
    }

    public void registerServerRPCHook(RPCHook hook) {
        throw inside("a hook for requests");
    }

    public Groups getSubscriptionGroupManager() {
        return new Groups();
    }

    public Orders getConsumerOrderInfoManager() {
        return new Orders();
    }

    public Offsets getConsumerOffsetManager() {
        return new Offsets();
    }

    public Store getMessageStore() {
        return new Store();
    }

    public Topics getTopicConfigManager() {
        return new Topics();
    }

    /** What another process does when it is time. */
    public static class Wakes {
        public void refreshMetadata() {
        }

        public void wakeup() {
        }
    }

    /** Queues of the broker, as clients see them. */
    public class Store {
        public long getMaxOffsetInQueue(String topic, int queueId) {
            return ask(() -> wire().getMaxOffset(address, queue(topic, queueId), WAIT_MS));
        }

        public long getMinOffsetInQueue(String topic, int queueId) {
            return ask(() -> wire().getMinOffset(address, queue(topic, queueId), WAIT_MS));
        }

        public long dispatchBehindBytes() { // what is acknowledged can be read
            return 0;
        }

        public void cleanUnusedTopic(Object topics) {
        }

        public long estimateMessageCount(String topic, int queueId, long from, long to, MessageFilter filter) {
            throw inside("estimates of its store");
        }
    }

    private MessageQueue queue(String topic, int queueId) {
        return new MessageQueue(topic, config.getBrokerName(), queueId);
    }

    /** Topics of the broker. */
    public class Topics {
        public Table getTopicConfigTable() {
            return new Table();
        }

        public void updateTopicConfig(TopicConfig wanted) {
            ask(() -> {
                admin().createAndUpdateTopicConfig(address, wanted);
                return wanted;
            });
        }

        /** Looks up topics by name. */
        public class Table {
            public TopicConfig get(String topic) {
                return ask(() -> admin().examineTopicConfig(address, topic));
            }

            public Set<String> keySet() {
                throw inside("the table of its topics");
            }
        }
    }

    /** Offsets of groups. */
    public class Offsets {
        public long queryOffset(String group, String topic, int queueId) {
            QueryConsumerOffsetRequestHeader asked = new QueryConsumerOffsetRequestHeader();
            asked.setConsumerGroup(group);
            asked.setTopic(topic);
            asked.setQueueId(queueId);
            return ask(() -> wire().queryConsumerOffset(address, asked, WAIT_MS));
        }

        public long queryPullOffset(String group, String topic, int queueId) {
            return ask(() -> wire().getConsumeStats(address, group, topic, WAIT_MS)).getOffsetTable()
                .get(queue(topic, queueId)).getPullOffset();
        }
    }

    /** Ordered queues of groups, as a receiver sees them. */
    public class Orders {
        /** Sends one more message and tells whether an ordered receiver is kept from it. */
        public boolean checkBlock(String attemptId, String topic, String group, int queueId, long invisibleTime)
                throws Exception {
            BaseConf.getProducer(BaseConf.NAMESRV_ADDR, topic).send(1);
            RMQPopClient client = new RMQPopClient();
            client.create();
            client.start();
            try {
                long now = System.currentTimeMillis();
                return !client.notification(address, topic, group, queueId, true, attemptId, 500, now, WAIT_MS).get();
            } finally {
                client.shutdown();
            }
        }
    }

    /** Groups of the broker, as mqadmin changes them. */
    public class Groups {
        public SubscriptionGroupConfig findSubscriptionGroupConfig(String group) {
            SubscriptionGroupConfig found = ask(() -> admin().examineSubscriptionGroupConfig(address, group));
            if (found == null) { // as the broker's own would make it
                found = new SubscriptionGroupConfig();
                found.setGroupName(group);
            }
            return found;
        }

        public void updateSubscriptionGroupConfig(SubscriptionGroupConfig wanted) {
            ask(() -> {
                admin().createAndUpdateSubscriptionGroupConfig(address, wanted);
                return wanted;
            });
        }
    }
}
