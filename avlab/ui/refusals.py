"""What a page does with a refusal: it says the sentence, and goes on."""

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from avlab.config import ConfigError
from avlab.errors import is_ours
from avlab.escaping import in_markdown


@contextmanager
def refusals() -> Iterator[None]:
    """Show an error of ours from inside as its sentence, a ConfigError as one for each field; others are raised."""
    try:
        yield
    except Exception as error:
        if not is_ours(error):
            raise
        for sentence in error.sentences if isinstance(error, ConfigError) else [str(error)]:
            st.error(in_markdown(sentence))
