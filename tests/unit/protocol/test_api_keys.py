from kio.schema.index import api_key_map

from broker.protocol.api_keys import ApiKey


def test_every_key_with_schemas_is_here_under_its_name() -> None:
    assert {key: ApiKey(key).name.lower() for key in api_key_map} == dict(api_key_map)


def test_schema_name_and_title() -> None:
    assert ApiKey.LIST_OFFSETS.schema_name == "list_offsets"
    assert ApiKey.LIST_OFFSETS.title == "ListOffsets"
    assert ApiKey.API_VERSIONS == 18


def test_only_the_keys_that_kafka_4_dropped_have_no_schemas() -> None:
    assert {key for key in ApiKey if key not in api_key_map} == {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
    }
