from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import broker.server.controller_handlers
import broker.server.handlers
from broker.protocol.api_keys import ApiKey
from broker.protocol.frames import Frame
from broker.protocol.requests import Request
from broker.server.api_registry import ApiRegistry, handles, handles_frames
from broker.server.request_context import RequestContext
from broker.server.response_slot import ResponseSlot


class Service:
    pass


@handles(ApiKey.LIST_GROUPS, versions=range(2, 6))
async def list_groups(request: Request, context: RequestContext, service: Service, other: dict[str, int]) -> Any:
    """ListGroups: a test."""


@handles_frames(ApiKey.PRODUCE, versions=range(3, 14), advertised_from=0)
def produce(frame: Frame, context: RequestContext, slot: ResponseSlot, service: Service) -> None:
    """Produce: a test."""


@handles_frames(ApiKey.API_VERSIONS, versions=range(5), accepts_unlisted_versions=True)
def api_versions(frame: Frame, context: RequestContext, slot: ResponseSlot) -> None:
    """ApiVersions: a test."""


def module_of(**members: Any) -> ModuleType:
    module = ModuleType("handlers.some")
    vars(module).update(members)
    return module


@pytest.fixture
def registry() -> ApiRegistry:
    return ApiRegistry.from_modules([module_of(list_groups=list_groups, produce=produce), module_of(av=api_versions)])


def test_what_decorators_say(registry: ApiRegistry) -> None:
    assert [handler.api_key for handler in registry] == [ApiKey.PRODUCE, ApiKey.LIST_GROUPS, ApiKey.API_VERSIONS]
    listed = registry.get(ApiKey.LIST_GROUPS)
    assert listed is not None
    assert (listed.is_coroutine, listed.takes_frames, listed.is_pipelined) == (True, False, False)
    assert (listed.advertised_from, listed.versions) == (2, range(2, 6))
    assert listed.service_types == (Service, dict)
    assert listed.documentation == "ListGroups: a test."
    hot = registry.get(ApiKey.PRODUCE)
    assert hot is not None
    assert (hot.is_coroutine, hot.takes_frames, hot.is_pipelined, hot.advertised_from) == (False, True, True, 0)
    assert hot.service_types == (Service,)
    assert len(registry) == 3


def test_find_answers_for_exactly_the_versions_listed(registry: ApiRegistry) -> None:
    assert registry.find(ApiKey.LIST_GROUPS, 2) is registry.get(ApiKey.LIST_GROUPS)
    assert registry.find(ApiKey.LIST_GROUPS, 1) is None
    assert registry.find(ApiKey.LIST_GROUPS, 6) is None
    assert registry.find(ApiKey.PRODUCE, 2) is None, "listed from 0, answered from 3"
    assert registry.find(ApiKey.FETCH, 12) is None
    assert registry.find(ApiKey.API_VERSIONS, 77) is registry.get(ApiKey.API_VERSIONS)


def test_two_handlers_of_one_key_are_a_mistake() -> None:
    @handles(ApiKey.LIST_GROUPS, versions=range(2))
    async def another(request: Request, context: RequestContext) -> Any: ...

    with pytest.raises(AssertionError, match="ListGroups has two handlers"):
        ApiRegistry([list_groups.__api_handler__, another.__api_handler__])  # type: ignore[attr-defined]


@pytest.mark.parametrize("package", [broker.server.handlers, broker.server.controller_handlers])
def test_the_package_imports_every_module_with_a_handler(package: ModuleType) -> None:
    assert package.__file__ is not None
    held = {path.stem for path in Path(package.__file__).parent.glob("*.py") if "@handles" in path.read_text()}
    source = Path(package.__file__).read_text()
    missing = {name for name in held if f"import {name} as {name}" not in source}
    assert not missing, f"{package.__name__} does not list {sorted(missing)}"
