"""Wherry: a Kafka-compatible broker whose replicas meet in object storage."""

__version__ = "0.1.0"
