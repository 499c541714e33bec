"""The way to the gateway: how it is reached, what it carries and costs, what is known of it."""
