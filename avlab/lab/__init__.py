"""The lab's side of the wire: one database, its recorder, at most one worker, and the socket for everybody else."""
