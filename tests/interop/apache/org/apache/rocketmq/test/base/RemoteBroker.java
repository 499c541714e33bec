package org.apache.rocketmq.test.base;

import java.util.Set;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.test.client.rmq.RMQPopClient;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.CommandUtil;

/** A broker in another process, in the place of Apache's BrokerController: what tests ask of it goes over the wire. */
public class RemoteBroker {
    private static final long WAIT_MS = 10_000;
    private final BrokerConfig config = new BrokerConfig(); // what tests set here reaches nobody
    private final String address;
    private final Groups groups = new Groups();

    RemoteBroker(String name, String cluster, String address) {
        config.setBrokerName(name);
        config.setBrokerClusterName(cluster);
        this.address = address;
    }

    public BrokerConfig getBrokerConfig() {
        return config;
    }

    public String getBrokerAddr() {
        return address;
    }

    public Groups getSubscriptionGroupManager() {
        return groups;
    }

    public Orders getConsumerOrderInfoManager() {
        return new Orders();
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

    /** Groups of all brokers, as mqadmin changes them. */
    public class Groups {
        public SubscriptionGroupConfig findSubscriptionGroupConfig(String group) {
            SubscriptionGroupConfig found = new SubscriptionGroupConfig();
            found.setGroupName(group);
            return found;
        }

        public void updateSubscriptionGroupConfig(SubscriptionGroupConfig wanted) {
            DefaultMQAdminExt admin = new DefaultMQAdminExt();
            admin.setInstanceName("groups" + System.nanoTime());
            admin.setNamesrvAddr(BaseConf.NAMESRV_ADDR);
            try {
                admin.start();
                Set<String> masters = CommandUtil.fetchMasterAddrByClusterName(admin, BaseConf.CLUSTER_NAME);
                for (String each : masters) {
                    admin.createAndUpdateSubscriptionGroupConfig(each, wanted);
                }
            } catch (Exception error) {
                throw new IllegalStateException(error);
            } finally {
                admin.shutdown();
            }
        }
    }
}
