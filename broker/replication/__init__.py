"""Partitions of this broker: who leads, what is replicated, and the produce and fetch paths through them."""
