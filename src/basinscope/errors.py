"""The errors Basinscope raises: each names the value, the expectation and the remedy."""


class BasinscopeError(Exception):
    """Base class of every error raised by Basinscope."""


class InputError(BasinscopeError, ValueError):
    """An argument, a model or a data set that cannot yield a trustworthy number."""


class StoreError(BasinscopeError, RuntimeError):
    """A store of results that cannot be read or written as it should: nothing that it holds is lost."""
