"""Completion in bash, which parts words at a colon: `example:h100` reaches us as three words and must be one again."""

from __future__ import annotations

from click.shell_completion import BashComplete, CompletionItem, add_completion_class


class _Bash(BashComplete):
    """click's, with words that hold a colon put together; what bash has typed already is left out of the answers."""

    typed = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        if incomplete == ":" and args:
            incomplete, self.typed = f"{args[-1]}:", f"{args[-1]}:"
            return args[:-1], incomplete
        if len(args) > 1 and args[-1] == ":":
            self.typed = f"{args[-2]}:"
            return args[:-2], self.typed + incomplete
        return args, incomplete

    def format_completion(self, item: CompletionItem) -> str:
        return super().format_completion(CompletionItem(item.value.removeprefix(self.typed), type=item.type))


def complete_words_with_colons() -> None:
    """Let bash complete `--facts example:NAME`; zsh and fish part no words there."""
    add_completion_class(_Bash)
