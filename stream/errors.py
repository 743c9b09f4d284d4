"""Refusals: the one kind of exception that reaches a person.

    HatcastError                 hatcast does not go on; str() is one line that says what to change
    ├── SettingError          a key of hatcast.toml is missing, unknown or out of range
    └── RecordingError        a file is not what its format says

What is expected is a value, not an exception: a record ends in an `Outcome`, a HAT in a `Status`.
A refusal carries no data of the feed: no vehicle, no reading, no count.
"""


class HatcastError(Exception):
    """hatcast does not go on. The message is one line and says what to change."""


class SettingError(HatcastError):
    """A key of the configuration is missing, unknown or out of range, or a promise could not be kept with it."""

    def __init__(self, key: str, problem: str, mend: str) -> None:
        super().__init__(f"{key}: {problem}; {mend}")
        self.key = key


class RecordingError(HatcastError):
    """A recording cannot be read as the format that was named for it."""

    def __init__(self, path: str, problem: str, mend: str) -> None:
        super().__init__(f"{path}: {problem}; {mend}")
