"""What answers a prompt: one module a back end; none knows git or the workbench."""
