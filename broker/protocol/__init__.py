"""Bytes of Kafka's protocol to objects and back: keys, frames, schemas, and the codecs of the hot path."""
