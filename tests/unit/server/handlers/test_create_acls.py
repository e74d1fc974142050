import asyncio

import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.server.handlers.create_acls import create_acls
from tests.unit.server.link_support import ask, request_of, schema_of


@pytest.mark.parametrize("version", range(1, 4))
def test_every_entry_is_refused(version: int) -> None:
    creation = schema_of(ApiKey.CREATE_ACLS, version).AclCreation(
        resource_type=2,
        resource_name="t",
        resource_pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )
    given = request_of(ApiKey.CREATE_ACLS, version, creations=(creation, creation))
    answer = asyncio.run(ask(create_acls, given))
    assert [each.error_code for each in answer.results] == [ErrorCode.security_disabled] * 2
