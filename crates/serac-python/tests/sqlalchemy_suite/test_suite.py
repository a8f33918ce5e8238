"""The tests of the suite."""

from sqlalchemy.testing.suite import *  # noqa: F403
