"""What is kept: the journal, the views written from it, and the lock of the state directory."""
