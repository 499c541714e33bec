package org.apache.rocketmq.test.base;

import java.util.Set;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.CommandUtil;

/** A broker in another process, in the place of Apache's BrokerController: what tests ask of it goes over the wire. */
public class RemoteBroker {
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

    public Inside getConsumerOrderInfoManager() {
        return new Inside();
    }

    /** What only the process of the broker knows. */
    public static class Inside {
        public boolean checkBlock(String attemptId, String topic, String group, int queueId, long invisibleTime) {
            throw new UnsupportedOperationException("the test looks into the broker's process");
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
