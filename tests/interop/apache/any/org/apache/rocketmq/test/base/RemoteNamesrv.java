package org.apache.rocketmq.test.base;

import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;

/** A NameServer in another process, in the place of Apache's NamesrvController. */
public class RemoteNamesrv {
    private final NamesrvConfig config = new NamesrvConfig(); // what tests set here reaches nobody
    private final NettyServerConfig server = new NettyServerConfig();

    RemoteNamesrv(int port) {
        server.setListenPort(port);
    }

    public NamesrvConfig getNamesrvConfig() {
        return config;
    }

    public NettyServerConfig getNettyServerConfig() {
        return server;
    }
}
