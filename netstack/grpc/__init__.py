"""RocketMQ 5 clients: gRPC over HTTP/2, the server side. Loaded when its port is on."""
