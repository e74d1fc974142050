"""Whatever is written into a properties file is read back equal."""

from hypothesis import given
from hypothesis import strategies as st

from broker.config.properties import format_properties, parse_properties

comments = st.text(st.characters(exclude_categories=["Cs", "Cc"]))


@given(st.dictionaries(st.text(min_size=1), st.text()), st.lists(comments))
def test_a_written_file_is_read_back_equal(properties: dict[str, str], remarks: list[str]) -> None:
    written = format_properties(properties, remarks)
    assert parse_properties(written) == properties
    assert parse_properties(written.replace("\n", "\r\n")) == properties
