# Unit tests of util and wire.
