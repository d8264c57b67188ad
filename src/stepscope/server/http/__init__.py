"""HTTP: the server, its connections, access control, and the files of the pages."""
