"""Connections of gRPC clients that reach a follower are carried to the leader."""
