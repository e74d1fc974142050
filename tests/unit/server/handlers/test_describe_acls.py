import asyncio

import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.server.handlers.describe_acls import describe_acls
from tests.unit.server.link_support import ask, request_of


@pytest.mark.parametrize("version", range(1, 4))
def test_there_is_no_authorizer(version: int) -> None:
    given = request_of(
        ApiKey.DESCRIBE_ACLS,
        version,
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    answer = asyncio.run(ask(describe_acls, given))
    assert answer.error_code == ErrorCode.security_disabled
    assert answer.error_message == "No Authorizer is configured on the broker"
    assert answer.resources == ()
