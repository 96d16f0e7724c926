"""The storage of files: directories of this machine, and object stores."""
