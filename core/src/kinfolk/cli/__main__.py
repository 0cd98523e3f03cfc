"""`python -m kinfolk.cli`."""

from kinfolk.cli import main

if __name__ == "__main__":
    main()
