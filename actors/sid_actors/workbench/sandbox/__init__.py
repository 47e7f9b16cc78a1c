"""What a job may see and write: bubblewrap, /etc, and the interpreters that programs need."""
