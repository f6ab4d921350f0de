# Unit tests of source and vfs.
