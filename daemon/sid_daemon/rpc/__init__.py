"""How clients are served: the socket, the wire, the method table answered, results as rows."""
