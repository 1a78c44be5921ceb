"""Tools of one's own: each public function is one. Its schema comes from the type hints
and the docstring. A problem's fixture runs first in the same namespace: here it
defines db."""


def lookup(key: str) -> None:
    """Print the entry of a key.

    Args:
        key: the key
    """
    print(db[key])  # noqa: F821
