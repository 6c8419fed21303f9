"""`python -m q35chat` is `q35chat`."""

from q35chat.cli import main

if __name__ == "__main__":
    main()
