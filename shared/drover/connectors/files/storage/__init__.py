"""Where files are: directories of this machine, and object stores."""
