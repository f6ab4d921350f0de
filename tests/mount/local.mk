# Tests through a real mount that need no oracle.
