from broker.server.shared_receive_buffer import RECEIVE_BUFFER_BYTES, SharedReceiveBuffer


def test_a_held_request_stands_in_front_of_what_comes() -> None:
    shared = SharedReceiveBuffer(16)
    assert len(shared.after(b"")) == 16
    rest = shared.after(b"held")
    assert len(rest) == 12
    rest[:3] = b"new"
    assert bytes(shared.view[:7]) == b"heldnew"


def test_its_size() -> None:
    assert len(SharedReceiveBuffer().view) == RECEIVE_BUFFER_BYTES == 262144
