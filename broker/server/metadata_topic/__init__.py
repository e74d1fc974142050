"""A topic of the brokers' own, over the wire: created, appended to, read.  KIP-1176 has one, KIP-405 another."""
