"""`python -m gangline`: the command line, where its script is not on the PATH."""

from gangline.cli.main import main

if __name__ == "__main__":
    main()
