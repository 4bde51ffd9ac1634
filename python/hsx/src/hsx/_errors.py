"""What goes wrong, for callers that branch on it."""


class HsxError(Exception):
    """A dataset, or something asked of it, that is refused: the message says what was seen and what was wanted."""

    __module__ = "hsx"


class VersionError(HsxError):
    """The dataset has a newer format than this package reads."""

    __module__ = "hsx"


class CorruptError(HsxError):
    """The dataset is not as it was written; the message begins with the file, relative to the dataset."""

    __module__ = "hsx"
