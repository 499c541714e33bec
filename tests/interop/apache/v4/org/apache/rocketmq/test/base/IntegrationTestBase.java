package org.apache.rocketmq.test.base;

import org.apache.rocketmq.test.util.MQAdmin;
import org.apache.rocketmq.test.util.TestUtils;
import org.junit.Assert;

/**
 * In the place of Apache's class of this name, which starts brokers in its own process: these run elsewhere.
 * Properties: namesrvPort, cluster, brokers (NAME=HOST:PORT, with commas between).
 */
public class IntegrationTestBase {
    private static final int TRIES = 60;
    private static final int PAUSE_MS = 500;
    private static final String[] BROKERS = System.getProperty("brokers").split(",");
    private static int named = 0;

    public static RemoteNamesrv createAndStartNamesrv() {
        return new RemoteNamesrv(Integer.getInteger("namesrvPort"));
    }

    public static RemoteBroker createAndStartBroker(String namesrv) {
        return new RemoteBroker(BROKERS[named++].split("=")[0], System.getProperty("cluster"));
    }

    public static boolean initTopic(String topic, String namesrv, String cluster) {
        for (int i = 0; i < TRIES; i++) {
            if (MQAdmin.createTopic(namesrv, cluster, topic, 8)) {
                return true;
            }
            TestUtils.waitForMoment(PAUSE_MS);
        }
        Assert.fail("topic " + topic + " was not made");
        return false;
    }
}
