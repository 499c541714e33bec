"""Broker behaviour: state tables, request handlers, rules."""
