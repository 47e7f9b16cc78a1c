"""The tests, and three modules that they share: `repos`, `leaks` and the fixtures of `conftest`."""
