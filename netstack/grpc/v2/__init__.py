"""The messages of apache.rocketmq.v2, made from the proto files here by systemd/proto_modules.py."""
