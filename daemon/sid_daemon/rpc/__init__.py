"""How clients are served: the socket, the wire, the method table, results as rows.

To be read in this order:

    the socket    listening, socket_keeper
    the wire      server, connection, dispatcher
    the methods   methods, lesson_methods, node_methods, log_methods; reporting (git and chart)
    their rows    rows, live_rows, row_cache, setting_rows
"""
