from broker.common.errors import KafkaError
from broker.metadata.metadata_fault import MetadataFault


def test_a_fault_is_not_something_to_tell_a_client() -> None:
    assert not issubclass(MetadataFault, KafkaError)
