package org.apache.rocketmq.test.grpc.v2;

import apache.rocketmq.v2.QueryRouteResponse;
import io.grpc.Channel;
import org.apache.rocketmq.proxy.config.ConfigurationManager;
import org.junit.After;
import org.junit.Before;
import org.junit.Test;

/** The tests of GrpcBaseIT at an address: properties grpcPort, and those of BaseConf. */
public class RemoteGrpcIT extends GrpcBaseIT {
    @Before
    public void setUp() throws Exception {
        super.setUp();
        port = Integer.getInteger("grpcPort");
        ConfigurationManager.getProxyConfig().setGrpcServerPort(port);
        Channel channel = createChannel(port); // one for both, as clients have it
        blockingStub = createBlockingStub(channel);
        stub = createStub(channel);
    }

    @After
    public void clean() {
        shutdown();
    }

    @Test
    public void testQueryRoute() throws Exception {
        QueryRouteResponse response = blockingStub.queryRoute(buildQueryRouteRequest(initTopic()));
        assertQueryRoute(response, DEFAULT_QUEUE_NUMS); // those of the box that is asked
    }

    @Test
    public void testQueryAssignment() throws Exception {
        super.testQueryAssignment();
    }

    @Test
    public void testQueryFifoAssignment() throws Exception {
        super.testQueryFifoAssignment();
    }

    @Test
    public void testTransactionCheckThenCommit() {
        super.testTransactionCheckThenCommit();
    }

    @Test
    public void testSimpleConsumerSendAndRecvDelayMessage() throws Exception {
        super.testSimpleConsumerSendAndRecvDelayMessage();
    }

    @Test
    public void testSimpleConsumerSendAndRecallDelayMessage() throws Exception {
        super.testSimpleConsumerSendAndRecallDelayMessage();
    }

    @Test
    public void testSimpleConsumerSendAndRecvBigMessage() throws Exception {
        super.testSimpleConsumerSendAndRecvBigMessage();
    }

    @Test
    public void testSimpleConsumerSendAndRecv() throws Exception {
        super.testSimpleConsumerSendAndRecv();
    }

    @Test
    public void testSimpleConsumerToDLQ() throws Exception {
        super.testSimpleConsumerToDLQ();
    }

    @Test
    public void testConsumeOrderly() throws Exception {
        super.testConsumeOrderly();
    }
}
