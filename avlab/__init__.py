"""A lab bench for adaptive verification in speculative decoding."""


def open(path):
    """A lab's database for a notebook: `avlab.open(path).run(id).steps` is a data frame (`avlab.notebook`)."""
    from avlab.notebook import open as open_lab  # pandas and DuckDB load only when somebody reads

    return open_lab(path)
