"""What a worker and its lab both know: frames, commands, and the sockets they go through."""
