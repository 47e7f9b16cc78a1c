"""Where candidates are made and measured: checkouts, seal, sandbox, scoring; knows no back end."""
