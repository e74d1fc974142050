"""Tiered storage in a broker: what joins its parts with topics, requests and metrics (KIP-405)."""
