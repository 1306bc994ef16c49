"""The in-process queue wakes its consumer."""

import threading
import time
from collections.abc import Iterator

import pytest
from kombu import Connection, Exchange, Queue

from config import broker

QUEUE = Queue("broker-test", Exchange("broker-test"), routing_key="broker-test")


@pytest.fixture
def connection() -> Iterator[Connection]:
    broker.register()
    with Connection(broker.URL) as connection:
        yield connection
        QUEUE(connection.default_channel).purge()


def comes_round(connection: Connection, *, timeout: float) -> bool:
    """Whether something was delivered, at the first time that the connection says either."""
    try:
        connection.drain_events(timeout=timeout)
    except TimeoutError:
        return False
    return True


def test_a_message_wakes_a_waiting_consumer(connection: Connection) -> None:
    arrived: list[float] = []

    def send() -> None:
        time.sleep(0.2)
        with Connection(broker.URL) as other, other.Producer() as producer:
            sent.append(time.monotonic())
            producer.publish({"id": 1}, exchange=QUEUE.exchange, routing_key=QUEUE.routing_key)

    sent: list[float] = []

    def receive(body: object, message: object) -> None:
        arrived.append(time.monotonic())

    with connection.Consumer([QUEUE], callbacks=[receive], no_ack=True):
        sender = threading.Thread(target=send)
        sender.start()
        while not arrived:
            connection.drain_events(timeout=5)
        sender.join()
    assert arrived[0] - sent[0] < 0.5


def test_waiting_ends_when_nothing_comes(connection: Connection) -> None:
    with connection.Consumer([QUEUE], callbacks=[print]):
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.1)
    assert 0.09 < time.monotonic() - started < 2


def test_a_full_consumer_comes_round_for_its_acknowledgements(connection: Connection) -> None:
    held: list[object] = []
    with connection.Producer() as producer:
        QUEUE(connection.default_channel).declare()
        for number in range(2):
            producer.publish({"id": number}, exchange=QUEUE.exchange, routing_key="broker-test")
    consumer = connection.Consumer([QUEUE], on_message=held.append, prefetch_count=1)
    with consumer:
        while not held:
            connection.drain_events(timeout=1)
        started = time.monotonic()
        assert not comes_round(connection, timeout=30)
        assert time.monotonic() - started < 5
    assert len(held) == 1
