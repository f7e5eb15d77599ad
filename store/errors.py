"""What can go wrong with the database, said in one sentence: what was asked, what was found, what to do."""


class StoreError(Exception):
    """Base of every error of the store. Page and command line show its message as it is."""


class DatabaseHeld(StoreError):
    """Another process holds the file."""


class SchemaError(StoreError):
    """The file is not one of ours, or is of a schema version that this code cannot use."""


class RecorderError(StoreError):
    """Frames could not be committed. Nothing that was acknowledged is affected."""


class UnknownRun(StoreError):
    """No run, or more than one, answers to the given id."""


class DamagedRun(StoreError):
    """A run holds a value that no run has, where something is to be made of it."""


class NoCosts(StoreError):
    """A run without timed steps was asked for their costs."""


class TransferError(StoreError):
    """A folder could not be exported to or imported from."""
