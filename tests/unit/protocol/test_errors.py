from broker.protocol.errors import MalformedFrameError, ProtocolError, UnsupportedApiError


def test_an_unsupported_api_says_which() -> None:
    error = UnsupportedApiError(99, 3)
    assert (error.api_key, error.version) == (99, 3)
    assert str(error) == "api key 99 version 3 is not offered"
    assert isinstance(error, ProtocolError)
    assert issubclass(MalformedFrameError, ProtocolError)
