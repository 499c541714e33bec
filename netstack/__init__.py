"""Speaks the RocketMQ remoting protocol, both ends; knows nothing of storage or broker rules."""
