package org.apache.rocketmq.test.base;

import org.apache.rocketmq.common.BrokerConfig;

/** A broker in another process, in the place of Apache's BrokerController. */
public class RemoteBroker {
    private final BrokerConfig config = new BrokerConfig(); // what tests set here reaches nobody

    RemoteBroker(String name, String cluster) {
        config.setBrokerName(name);
        config.setBrokerClusterName(cluster);
    }

    public BrokerConfig getBrokerConfig() {
        return config;
    }
}
