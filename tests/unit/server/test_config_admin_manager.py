import asyncio
from typing import Any

import pytest

from broker.common.errors import ErrorCode
from broker.config.broker_config import DEFAULT_SINGLE_NODE, BrokerConfig
from broker.metadata.config_repository import ConfigRepository
from broker.metadata.metadata_cache import MetadataCache
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import encode_response
from broker.schemas.cluster_metadata import ConfigRecord
from broker.server.config_admin_manager import forward_checked
from tests.unit.metadata.image_support import config_record, image_of
from tests.unit.server.handlers.forwarding_support import RESPONSE
from tests.unit.server.link_support import CONTEXT, request_of, schema_of

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND = 0, 1, 2
KEY, VERSION = ApiKey.INCREMENTAL_ALTER_CONFIGS, 1


class FakeForwarding:
    """A controller that accepts everything it is asked, and remembers it."""

    def __init__(self) -> None:
        self.forwarded: list[bytes] = []

    async def forward(self, request: Any, _context: Any) -> bytes:
        self.forwarded.append(request.frame)
        return RESPONSE

    async def forward_frame(self, frame: bytes, _context: Any) -> bytes:
        self.forwarded.append(frame)
        schema = request().schema
        row = schema.AlterConfigsResourceResponse(
            error_code=ErrorCode.none, error_message=None, resource_type=TOPIC, resource_name="t"
        )
        entity = schema.IncrementalAlterConfigsResponse(throttle_time=NO_THROTTLE, responses=(row,))
        return b"".join(encode_response(KEY, VERSION, 7, entity))[4:]


def request(*resources: tuple[int, str, str, int, str | None]) -> Any:
    schema = schema_of(KEY, VERSION)
    return request_of(
        KEY,
        VERSION,
        resources=tuple(
            schema.AlterConfigsResource(
                resource_type=kind,
                resource_name=resource,
                configs=(schema.AlterableConfig(name=name, config_operation=operation, value=value),),
            )
            for kind, resource, name, operation, value in resources
        ),
        validate_only=False,
    )


def whole(**values: str) -> Any:
    """AlterConfigs: all settings of broker 1."""
    schema = schema_of(ApiKey.ALTER_CONFIGS, 2)
    configs = tuple(schema.AlterableConfig(name=name.replace("_", "."), value=text) for name, text in values.items())
    resource = schema.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=configs)
    return request_of(ApiKey.ALTER_CONFIGS, 2, resources=(resource,), validate_only=False)


def repository_of(*stored: ConfigRecord) -> ConfigRepository:
    cache = MetadataCache()
    if stored:
        cache.set_image(image_of(*stored))
    return ConfigRepository(BrokerConfig(DEFAULT_SINGLE_NODE), cache)


def answered(forwarding: FakeForwarding, asked: Any, repository: ConfigRepository | None = None) -> Any:
    is_whole = asked.api_key == ApiKey.ALTER_CONFIGS
    schema = asked.schema
    response_class = schema.AlterConfigsResponse if is_whole else schema.IncrementalAlterConfigsResponse
    checked = forward_checked(asked, CONTEXT, forwarding, repository or repository_of(), response_class)  # type: ignore[arg-type]
    return asyncio.run(checked)


@pytest.mark.parametrize(
    "resource",
    [
        (BROKER, "1", "log.retention.ms", SET, "1000"),
        (BROKER, "", "log.retention.ms", SET, "1000"),
        (BROKER, "1", "log.retention.ms", 1, None),
        (BROKER, "1", "listeners", APPEND, "wrong"),  # the controller knows which settings are lists
        (BROKER, "1", "no.such.setting", SET, "kept for others"),
        (TOPIC, "t", "retention.ms", SET, "soon"),  # the controller knows topics
    ],
)
def test_what_can_be_goes_to_the_controller_as_it_came(resource: tuple[int, str, str, int, str | None]) -> None:
    forwarding = FakeForwarding()
    asked = request(resource)
    assert answered(forwarding, asked) is RESPONSE
    assert forwarding.forwarded == [asked.frame]


@pytest.mark.parametrize(
    ("name", "value"), [("log.retention.ms", "soon"), ("num.replica.fetchers", "0"), ("node.id", "7")]
)
def test_what_no_broker_can_be_is_refused_here(name: str, value: str) -> None:
    forwarding = FakeForwarding()
    (row,) = answered(forwarding, request((BROKER, "1", name, SET, value))).responses
    assert (row.error_code, row.resource_type, row.resource_name) == (ErrorCode.invalid_config, BROKER, "1")
    assert name in row.error_message
    assert forwarding.forwarded == []


LOCAL = config_record("log.local.retention.ms", "5000", "1", BROKER)
LOCAL_BYTES = config_record("log.local.retention.bytes", "6", "", BROKER)
TOTAL = config_record("log.retention.ms", "6000", "1", BROKER)
TOTAL_OF_ALL = config_record("log.retention.ms", "3", "", BROKER)


@pytest.mark.parametrize(
    ("resource", "stored"),
    [
        ((BROKER, "1", "log.local.retention.ms", SET, "-1"), ()),
        ((BROKER, "", "log.local.retention.ms", SET, "604800001"), ()),
        ((BROKER, "1", "log.local.retention.ms", SET, "6001"), (TOTAL,)),
        ((BROKER, "1", "log.retention.ms", SET, "4999"), (LOCAL,)),
        ((BROKER, "", "log.retention.bytes", SET, "5"), (config_record("log.local.retention.bytes", "6", "", BROKER),)),
        (
            (BROKER, "1", "log.retention.ms", DELETE, None),
            (config_record("log.retention.ms", "3", "", BROKER), TOTAL, LOCAL),
        ),
    ],
)
def test_what_does_not_fit_what_this_broker_has_is_refused_here(
    resource: tuple[int, str, str, int, str | None], stored: tuple[ConfigRecord, ...]
) -> None:
    forwarding = FakeForwarding()
    (row,) = answered(forwarding, request(resource), repository_of(*stored)).responses
    assert (row.error_code, row.resource_name) == (ErrorCode.invalid_config, resource[1])
    assert row.error_message.startswith("log.local.retention.")
    assert forwarding.forwarded == []


@pytest.mark.parametrize(
    ("resource", "stored"),
    [
        ((BROKER, "1", "log.local.retention.ms", SET, "6000"), (TOTAL,)),
        ((BROKER, "1", "log.local.retention.ms", DELETE, None), (LOCAL,)),
        ((BROKER, "2", "log.retention.ms", SET, "4999"), (LOCAL,)),  # another broker's
    ],
)
def test_what_fits_what_this_broker_has_goes_to_the_controller(
    resource: tuple[int, str, str, int, str | None], stored: tuple[ConfigRecord, ...]
) -> None:
    assert answered(FakeForwarding(), request(resource), repository_of(*stored)) is RESPONSE


def test_the_older_way_leaves_nothing_of_before() -> None:
    """What is stored, and not named, is gone: it does not count."""
    (row,) = answered(FakeForwarding(), whole(log_local_retention_ms="-1", log_retention_ms="6000")).responses
    assert row.error_code == ErrorCode.invalid_config
    stored = repository_of(LOCAL)
    assert answered(FakeForwarding(), whole(log_retention_ms="4999"), stored) is RESPONSE


def test_the_others_of_a_request_are_done() -> None:
    forwarding = FakeForwarding()
    wrong, right = (BROKER, "1", "log.retention.ms", SET, "soon"), (TOPIC, "t", "retention.ms", SET, "1000")
    answer = answered(forwarding, request(wrong, right))
    assert [(row.resource_name, row.error_code) for row in answer.responses] == [
        ("t", ErrorCode.none),
        ("1", ErrorCode.invalid_config),
    ]
    assert forwarding.forwarded == [request(right).frame]
