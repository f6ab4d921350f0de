# Unit tests of layout and plan.
