"""The tests of hatcast; what they stand on is in ``tests.services``."""
