"""Every API in every version that a listener offers is asked once, and answers with the error codes it should."""

import base64
import uuid
from collections.abc import Iterator, Mapping

import pytest

from broker.protocol.api_keys import ApiKey
from tests.support.broker_process import QUICK, BrokerProcess
from tests.support.patience import until
from tests.support.wire_client import WireClient

from . import api_questions, controller_questions
from .api_questions import Cluster, Question, batch, errors_of

pytestmark = pytest.mark.interop

GROUP_PARTITIONS = int(QUICK["offsets.topic.num.partitions"])
LISTED_ONLY = {(ApiKey.PRODUCE, version) for version in range(3)}  # KIP-896: advertised, and never answered

Questions = Mapping[ApiKey, Question]


def each_version(questions: Questions) -> list[tuple[ApiKey, int]]:
    return [(api_key, version) for api_key, question in questions.items() for version in question.versions]


def names(asked: list[tuple[ApiKey, int]]) -> list[str]:
    return [f"{api_key.title}-{version}" for api_key, version in asked]


def offered(client: WireClient) -> set[tuple[ApiKey, int]]:
    request = client.request(ApiKey.API_VERSIONS, 0).ApiVersionsRequest()
    return {
        (ApiKey(row.api_key), version)
        for row in client.ask(ApiKey.API_VERSIONS, 0, request).api_keys
        for version in range(row.min_version, row.max_version + 1)
    }


@pytest.fixture(scope="module")
def identities(broker: BrokerProcess) -> Cluster:
    """The shared topic, and what only the broker knows of itself."""
    properties = dict(
        line.split("=", 1)
        for line in (broker.data / "meta.properties").read_text().splitlines()
        if not line.startswith("#")
    )
    directory_id = uuid.UUID(bytes=base64.urlsafe_b64decode(properties["directory.id"] + "=="))
    with WireClient(broker.port) as client:
        cluster = Cluster(
            broker,
            client,
            cluster_id=properties["cluster.id"],
            directory_id=directory_id,
            broker_epoch=int(broker.metric("broker_epoch")),
            controller_epoch=int(broker.metric("kafka_server_raft_metrics_current_epoch")),
        )
        cluster.topic, cluster.topic_id = cluster.new_topic(configs={"retention.ms": "-1"})  # its record is old
        cluster.produce(cluster.topic, batch(b"first"))
        # The coordinator of every group is known and loaded before the first question.
        schema = client.request(ApiKey.FIND_COORDINATOR, 3)
        request = schema.FindCoordinatorRequest(key="every-api-offsets", key_type=0)
        until(lambda: errors_of(client.ask(ApiKey.FIND_COORDINATOR, 3, request)) == {"none"}, "a coordinator")
        loaded = "kafka_server_group_coordinator_metrics_num_partitions"
        until(lambda: broker.metric(loaded, state="active") == GROUP_PARTITIONS, "all coordinators")
        return cluster


@pytest.fixture
def cluster(broker: BrokerProcess, identities: Cluster) -> Iterator[Cluster]:
    with WireClient(broker.port) as client:
        identities.client = client
        yield identities


@pytest.fixture
def controller(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.controller_port) as client:
        yield client


def test_the_broker_offers_what_is_asked_below(cluster: Cluster) -> None:
    assert offered(cluster.client) - LISTED_ONLY == set(each_version(api_questions.QUESTIONS))


def test_the_controller_offers_what_is_asked_below(controller: WireClient) -> None:
    assert offered(controller) == set(each_version(controller_questions.QUESTIONS))


BROKER = each_version(api_questions.QUESTIONS)
CONTROLLER = each_version(controller_questions.QUESTIONS)


@pytest.mark.parametrize(("api_key", "version"), BROKER, ids=names(BROKER))
def test_the_broker_answers(cluster: Cluster, api_key: ApiKey, version: int) -> None:
    question = api_questions.QUESTIONS[api_key]
    request = question.build(cluster, cluster.client.request(api_key, version))
    answer = cluster.client.ask(api_key, version, request)
    assert errors_of(answer) == question.expected(version), answer


@pytest.mark.parametrize(("api_key", "version"), CONTROLLER, ids=names(CONTROLLER))
def test_the_controller_answers(cluster: Cluster, controller: WireClient, api_key: ApiKey, version: int) -> None:
    question = controller_questions.QUESTIONS[api_key]
    request = question.build(cluster, controller.request(api_key, version))
    answer = controller.ask(api_key, version, request)
    assert errors_of(answer) == question.expected(version), answer
