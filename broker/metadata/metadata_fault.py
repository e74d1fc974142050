"""MetadataFault: the metadata log says something that cannot be."""


class MetadataFault(Exception):
    """A record that contradicts the ones before it, or that we do not know.

    Nothing is skipped: whoever meets one stops applying, since every later state would be a guess (Kafka's
    metadata loading fault handler).
    """
