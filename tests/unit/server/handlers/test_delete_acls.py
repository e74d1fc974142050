import asyncio

import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.server.handlers.delete_acls import delete_acls
from tests.unit.server.link_support import ask, request_of, schema_of


@pytest.mark.parametrize("version", range(1, 4))
def test_every_filter_is_refused(version: int) -> None:
    each = schema_of(ApiKey.DELETE_ACLS, version).DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    answer = asyncio.run(ask(delete_acls, request_of(ApiKey.DELETE_ACLS, version, filters=(each,))))
    (result,) = answer.filter_results
    assert (result.error_code, result.matching_acls) == (ErrorCode.security_disabled, ())
