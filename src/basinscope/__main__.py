"""`python -m basinscope COMMAND`: the command line where Basinscope is on the path, installed or not."""

from .cli import main

if __name__ == "__main__":
    main()
