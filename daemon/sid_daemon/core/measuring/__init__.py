"""What is measured next, and what it says: which candidate is better, on what evidence."""
