"""What a run looks like: series (pure), chart, page and text, all made from views."""
