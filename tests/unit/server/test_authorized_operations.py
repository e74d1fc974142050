from broker.server.authorized_operations import CLUSTER_OPERATIONS, NOT_REQUESTED, TOPIC_OPERATIONS


def test_the_bit_fields_are_those_of_kafka_without_an_authorizer() -> None:
    assert (TOPIC_OPERATIONS, CLUSTER_OPERATIONS, NOT_REQUESTED) == (3576, 8096, -2147483648)
