"""`python -m grpo_kit` is `grpo-kit`."""

from grpo_kit.cli import main

if __name__ == "__main__":
    main()
