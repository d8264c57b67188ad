"""HTTP: the server, its connections, who may ask, and the files of the pages."""
