# Tests that compare with the real MindSpore.
