"""POP over remoting: requests and answers of `appliance.broker.pop`, as RocketMQ 5.x clients spell them."""
