"""What an agent is seen doing while its turn runs: what it says, what its processes and files show."""
