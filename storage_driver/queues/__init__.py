"""The ConsumeQueues."""
