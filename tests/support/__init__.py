"""What the tests of the core share: peers that a test plays, and components without processes."""
