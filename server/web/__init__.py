"""The page: what is stored and running, rendered on the server, with nothing loaded from elsewhere."""
