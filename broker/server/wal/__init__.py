"""Replication through buckets on the wire, and how its parts are put together."""
