from typing import Any

from broker.protocol.api_keys import ApiKey
from broker.protocol.frames import Frame
from broker.protocol.requests import Request
from broker.server.api_registry import ApiRegistry, handles, handles_frames
from broker.server.protocol_reference import paragraphs, problems, reference
from broker.server.request_context import RequestContext
from broker.server.response_slot import ResponseSlot
from tests.support.socket_harness import handler_of


@handles(ApiKey.LIST_GROUPS, versions=range(6))
async def list_groups(request: Request, context: RequestContext) -> Any:
    """ListGroups: the groups of this coordinator.

    Behaviour: answers from memory,
      in two lines.
    Versions:  4 states · 5 types.
    Left out:  —
    """


@handles_frames(ApiKey.PRODUCE, versions=range(3, 14), advertised_from=0)
def produce(frame: Frame, context: RequestContext, slot: ResponseSlot) -> None:
    """Produce: nothing else."""


REGISTRY = ApiRegistry([handler_of(list_groups), handler_of(produce)])


def test_paragraphs_are_joined_by_heading() -> None:
    assert paragraphs(handler_of(list_groups)) == {
        "Behaviour:": "answers from memory, in two lines.",
        "Versions:": "4 states · 5 types.",
        "Left out:": "—",
    }


def test_a_docstring_without_the_headings_is_a_problem() -> None:
    complaints = problems(REGISTRY)
    assert len(complaints) == 3
    assert all("Produce" in complaint for complaint in complaints)


def test_the_page() -> None:
    page = reference(REGISTRY, ApiRegistry([]))
    assert "| 0 | Produce | 3-13 (listed from 0) | 13 |" in page
    assert "| 16 | ListGroups | 0-5 | 5 |" in page
    assert "### ListGroups (16), versions 0-5" in page
    assert "- **Behaviour.** answers from memory, in two lines." in page
    assert "Left out" not in page.split("### ListGroups")[1], "nothing is left out, nothing is said"
    assert page.index("Produce") < page.index("ListGroups")
