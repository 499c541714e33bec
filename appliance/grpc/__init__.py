"""The service of RocketMQ 5 clients: translates apache.rocketmq.v2 for the broker. Loaded when grpc.port is set."""
